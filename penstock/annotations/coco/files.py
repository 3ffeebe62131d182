"""Which JSON files of a source are COCO's, what they are for, and where their images lie.

::

    dataset/annotations/instances_train2017.json    images in train2017/, images/train2017/, ...; split "train2017"
    dataset/train/_annotations.coco.json            images beside it; split "train"
    any.json                                        images beside it, or in images/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.annotations.base import refuse_unknown_split
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError, ArgumentError

__all__ = ["TASKS", "CocoFile", "find_files", "has_coco_content"]

_PREFIXES: Final = {
    "instances_": "instances",
    "person_keypoints_": "keypoints",
    "keypoints_": "keypoints",
    "panoptic_": "panoptic",
    "stuff_": "stuff",
    "captions_": "captions",
    "image_info_": "image_info",
}
TASKS: Final = tuple(dict.fromkeys(_PREFIXES.values()))
"""What files are for, by the beginning of their names, in the order in which they are chosen."""
_SPLIT: Final = re.compile(r"(?:^|[-_. ])(train|val|test|dev|unlabel)", re.IGNORECASE)
_FOLDERS: Final = frozenset({"train", "training", "val", "valid", "validation", "test", "testing", "dev"})
_YEAR: Final = re.compile(r"[-_]?(19|20)\d\d$")
_HEAD_NBYTES: Final = 1 << 18
_MAX_HEADS: Final = 16
_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|[{}\[\]:]')
_LISTS: Final = frozenset({"images", "annotations", "categories"})


@dataclass(frozen=True, slots=True)
class CocoFile:
    """A JSON file: what it is for, and the name of its split, if it has one.

    ``has_prefix`` says whether its name says what it is for; other files are taken for instances.
    """

    path: Path
    task: str
    split: str | None
    has_prefix: bool

    @classmethod
    def of(cls, path: Path) -> CocoFile:
        """Return what the name of a file, or that of its folder, says."""
        name = path.stem
        for prefix, task in _PREFIXES.items():
            if name.lower().startswith(prefix):
                return cls(path, task, name[len(prefix) :] or None, True)
        folder = path.parent.name
        split = name if _SPLIT.search(name) else folder if _YEAR.sub("", folder).lower() in _FOLDERS else None
        return cls(path, "instances", split, False)

    @property
    def plain_split(self) -> str:
        """The name of the split without a year: "train" of "train2017"."""
        return _YEAR.sub("", self.split or "")

    def list_folders(self, source: AnnotationSource, name: str | None = None) -> tuple[Path, ...]:
        """Return the folders where its images may lie, or the masks of a panoptic file's name, the likeliest first."""
        bases = [source.images] if source.images is not None else []
        if not bases or name is not None:
            bases += [self.path.parent, source.folder, self.path.parent.parent]
        parts = [name] if name is not None else [self.split, self.plain_split]
        found: list[Path] = []
        for base in bases:
            below = [base / folder / part for part in parts if part for folder in (".", "images")]
            found += [*below, base / "images", base] if name is None else below
        return tuple(path for path in dict.fromkeys(found) if path.is_dir())


def find_files(source: AnnotationSource, task: str | None, split: str | None) -> list[CocoFile]:
    """Return the files to read, in the order of their paths.

    Raises AnnotationError if there are none. Raises ArgumentError if there are none of this task or split.
    """
    files = [CocoFile.of(source.path)] if source.path.is_file() else list(_list_candidates(source))
    if not files:
        raise AnnotationError("there is no JSON file of COCO's format", source=str(source.folder))
    if task is not None:
        if not source.path.is_file():
            files = [each for each in files if each.task == task]
        if not files:
            raise ArgumentError(f"there is no file for the task {task!r} below {str(source.folder)!r:.500}")
    else:
        best = min(map(_rank, files))
        files = [each for each in files if _rank(each) == best]
    if split is None:
        return files
    chosen = [each for each in files if each.split == split] or [each for each in files if each.plain_split == split]
    if not chosen:
        refuse_unknown_split(split, sorted({each.split for each in files if each.split is not None}))
    return chosen


def has_coco_content(source: AnnotationSource, path: Path) -> bool:
    """Return whether a JSON file begins as COCO's do: an object with a list of images, annotations or categories."""
    depth = 0
    key: str | None = None
    is_value = False
    for token in _TOKEN.finditer(source.read_head(path, _HEAD_NBYTES)):
        mark = token[0]
        if mark == "[" and depth == 1 and is_value and key in _LISTS:
            return True
        if mark in {"{", "["}:
            if depth == 0 and mark == "[":
                return False  # as results of a model
            depth += 1
        elif mark in {"}", "]"}:
            depth -= 1
            is_value = False
        elif mark == ":":
            is_value = depth == 1
        elif depth == 1:
            key, is_value = token[1], False
    return False


def _rank(file: CocoFile) -> int:
    """The order of choice: files named instances_*, then those without a known name, then the other tasks."""
    return 2 * TASKS.index(file.task) + (not file.has_prefix)


def _list_candidates(source: AnnotationSource) -> Iterator[CocoFile]:
    """The files of COCO's format below a folder: those named so first, since other JSON files may be many."""
    files = [CocoFile.of(path) for path in source.list_files(None, ".json")]
    files.sort(key=lambda each: (not (each.has_prefix or "coco" in each.path.name.lower()), len(each.path.parts)))
    refused = 0
    found: list[CocoFile] = []
    for each in files:
        if has_coco_content(source, each.path):
            found.append(each)
        else:
            refused += 1
        if refused >= _MAX_HEADS:
            break
    yield from sorted(found, key=lambda each: each.path)
