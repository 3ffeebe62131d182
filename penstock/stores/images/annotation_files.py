"""Which annotations lie with images, by the content of a few files: what is lost where only the images are read.

::

    1.jpg + 1.json, 1.xml, 1.txt    a file for half of the images or more, by name, in any folder: LabelMe, VOC, YOLO
    a.json, a.xml, a.csv, a.yaml    one file for all of them: COCO, CVAT, Open Images, YOLO's data.yaml
    labels.csv, list.txt            a table or a list that names the images, where these are one class

Called where a folder of images is opened or packed. The formats are read by :mod:`penstock.annotations`.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["FoundAnnotations", "find_annotations", "find_annotations_beside"]

_OF_EACH: Final = {
    ".json": ("labelme", re.compile(rb'"shapes"\s*:\s*\[')),
    ".xml": ("voc", re.compile(rb"<annotation[\s>]")),
    ".txt": ("yolo", re.compile(rb"\A\s*\d+(?:\.0*)?(?:[ \t]+[-+]?[0-9.]+(?:[eE][-+]?\d+)?){4,}[ \t]*(?:[\r\n]|\Z)")),
}
_OF_ALL: Final = {
    ".json": ("coco", re.compile(rb'"(?:images|annotations|categories)"\s*:\s*\[\s*\{')),
    ".xml": ("cvat", re.compile(rb"<annotations[\s>]")),
    ".csv": ("open_images", re.compile(rb'"?ImageID"?,(?=[^\n]*LabelName)(?=[^\n]*XMin)[^\n]*YMax')),
    ".yaml": ("yolo", re.compile(rb"(?m)^names[ \t]*:")),
    ".yml": ("yolo", re.compile(rb"(?m)^names[ \t]*:")),
}
_TABLES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt", ".lst")
_SUFFIXES: Final = frozenset((*_OF_EACH, *_OF_ALL, *_TABLES))
_BY_NAME: Final = {"_annotations.coco.json": "coco", "data.yaml": "yolo"}
_EXAMINED: Final = 100
_HEAD_NBYTES: Final = 1 << 16
_LISTED: Final = 1000
"""Of more images, so many files are enough: a listing has no more names of one ending."""
_WORDS: Final = re.compile(r"[^,;\s\"'\[\]{}]+")


@dataclass(frozen=True, slots=True)
class FoundAnnotations:
    """Annotations of images."""

    folder: str  # that of images and annotations
    format: str  # as penstock.annotations names it, or "auto"; empty for a table of other columns
    example: str  # the path of one of the files, below the folder

    def __str__(self) -> str:
        if self.format in {"", "auto"}:
            return f"the folder has a list of its images, {self.example!r}"
        return f"the folder has annotations of the format {self.format!r}, such as {self.example!r}"

    def advise(self) -> str:
        """Return how they are packed with their images: a clause."""
        if not self.format:
            return (
                f"penstock.pack({self.folder.rstrip('/') + '/' + self.example!r}, dst) packs the images that it names"
            )
        call = f"penstock.pack({self.folder!r}, dst, format={self.format!r})"
        return f"{call} (--format {self.format}) packs each image with its annotations"


def find_annotations(
    root: Path | None, images: Collection[str], others: Iterable[str], shown: str
) -> FoundAnnotations | None:
    """Find annotations among the other files of a folder of images; None if there are none.

    Parameters
    ----------
    root : Path, optional
        The folder; None where files cannot be read, and names must be enough.
    images, others : collections of str
        Paths below it, with forward slashes.
    shown : str
        The folder as messages have it where ``root`` is None.
    """
    folder = shown if root is None else str(root)
    by_suffix: dict[str, list[str]] = {}
    for name in others:
        if (kind := _BY_NAME.get(name.rpartition("/")[2])) is not None:
            return FoundAnnotations(folder, kind, name)
        if (suffix := os.path.splitext(name)[1].lower()) in _SUFFIXES:  # noqa: PTH122  # of a text
            by_suffix.setdefault(suffix, []).append(name)
    if not by_suffix:  # as a rule
        return None
    stems = set(map(_find_stem, images))
    for suffix, (kind, mark) in _OF_EACH.items():
        paired = [name for name in by_suffix.get(suffix, ()) if _find_stem(name) in stems]
        if 2 * len(paired) >= min(len(images), _LISTED) and (found := _find_marked(root, paired, mark)) is not None:
            return FoundAnnotations(folder, kind, found)
    for suffix, (kind, mark) in _OF_ALL.items():
        if (found := _find_marked(root, by_suffix.get(suffix, []), mark)) is not None:
            return FoundAnnotations(folder, kind, found)
    if len({name.partition("/")[0] for name in images if "/" in name}) > 1:  # then the folders are classes
        return None
    tables = [each for suffix in _TABLES for each in by_suffix.get(suffix, ())][:_EXAMINED]
    listing = None if root is None else _find_list(root, tables, images)
    kind = "auto" if (listing or "").lower().endswith((".txt", ".lst")) else ""
    return None if listing is None else FoundAnnotations(folder, kind, listing)


def find_annotations_beside(root: Path, images: Collection[str]) -> FoundAnnotations | None:
    """Find annotations of the images in a folder in folders beside it, as of ``images/train`` in ``labels/train``."""
    places = [root.parent / name for name in ("labels", "annotations", "Annotations")]
    if "images" in root.parts[:-1]:
        last = len(root.parts) - 1 - root.parts[::-1].index("images")
        places.insert(0, Path(*root.parts[:last], "labels", *root.parts[last + 1 :]))
    for place in places:
        try:
            with os.scandir(place) as entries:
                names = sorted(entry.name for entry in itertools.islice(entries, _LISTED))
        except OSError:
            continue
        if (found := find_annotations(place, images, names, "")) is not None:
            folder = os.path.commonpath([root, place])
            return FoundAnnotations(folder, found.format, f"{place.relative_to(folder)}/{found.example}")
    return None


def _find_marked(root: Path | None, names: list[str], mark: re.Pattern[bytes]) -> str | None:
    """The first of some files with a mark; of those that cannot be read, an XML file."""
    if root is None:
        return next((name for name in names if name.lower().endswith(".xml")), None)
    return next((name for name in names[:_EXAMINED] if mark.search(_read_head(root, name))), None)


def _find_list(root: Path, tables: Iterable[str], images: Iterable[str]) -> str | None:
    """Return the first of some texts of which one of the first three lines names an image."""
    names = {name.rpartition("/")[2] for name in images}
    for table in tables:
        lines = _read_head(root, table).decode(errors="replace").splitlines()[:3]
        words = (word for line in lines for word in _WORDS.findall(line))
        if any(each.replace("\\", "/").rpartition("/")[2] in names for each in words):
            return table
    return None


def _find_stem(name: str) -> str:
    return os.path.splitext(name.rpartition("/")[2])[0]  # noqa: PTH122  # of a text


def _read_head(root: Path | None, name: str) -> bytes:
    """Return the beginning of a regular file, without the mark of its encoding, and the zeros of UTF-16."""
    try:
        if root is None or not (root / name).is_file():
            return b""
        with (root / name).open("rb") as file:
            return file.read(_HEAD_NBYTES).replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")
    except (OSError, ValueError):  # what cannot be read is not recognised
        return b""
