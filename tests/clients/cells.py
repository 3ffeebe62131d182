"""Some of the repository's photographs of blood cells, as other libraries' datasets have them on disk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["SPLITS", "write_voc"]

SPLITS: Final = {"train": 10, "val": 5}
"""How many photographs each split has."""

_CELLS: Final = Path(__file__).resolve().parents[2] / "examples" / "data" / "blood-cells"


def write_voc(folder: Path, names: Mapping[str, str] | None = None) -> None:
    """Write the splits in the layout of PASCAL VOC; ``names`` are other names of classes."""
    for name in "Annotations", "JPEGImages", "ImageSets/Main":
        (folder / name).mkdir(parents=True)
    for split, count in SPLITS.items():
        stems = (_CELLS / "ImageSets" / "Main" / f"{split}.txt").read_text().split()[:count]
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(stems))
        for stem in stems:
            text = (_CELLS / "Annotations" / f"{stem}.xml").read_text()
            for name, other in (names or {}).items():
                text = text.replace(f"<name>{name}</name>", f"<name>{other}</name>")
            (folder / "Annotations" / f"{stem}.xml").write_text(text)
            shutil.copy(_CELLS / "JPEGImages" / f"{stem}.jpg", folder / "JPEGImages")
