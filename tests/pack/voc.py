"""Small PASCAL VOC sets for tests: real pictures, and an XML file for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from tests.pack.images import picture

Object = tuple[str, float, float, float, float]


def write_voc(folder: Path, pictures: Sequence[Sequence[Object]], extra: str = "") -> Path:
    """A set with one picture for each list of objects, in the split "train"; ``extra`` goes into each object."""
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    for number, objects in enumerate(pictures):
        (folder / "JPEGImages" / f"{number}.jpg").write_bytes(picture(number))
        with Image.open(folder / "JPEGImages" / f"{number}.jpg") as image:
            width, height = image.size
        body = "".join(
            f"<object><name>{name}</name><bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax>"
            f"</bndbox>{extra}</object>"
            for name, x0, y0, x1, y1 in objects
        )
        (folder / "Annotations" / f"{number}.xml").write_text(
            f"<annotation><filename>{number}.jpg</filename><size><width>{width}</width><height>{height}</height>"
            f"</size>{body}</annotation>"
        )
    (folder / "ImageSets" / "Main" / "train.txt").write_text("".join(f"{n}\n" for n in range(len(pictures))))
    return folder
