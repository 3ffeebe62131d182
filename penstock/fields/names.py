"""Names that people give to images, labels and keys, in order of preference, and how well a column's name fits.

A container goes through these names by :func:`rank_name` alone; what a column must hold besides, such as numbers or
texts, is decided by :mod:`penstock.fields.roles`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final

__all__ = [
    "BOX_NAMES",
    "CLASS_NAMES",
    "IMAGE_NAMES",
    "KEY_NAMES",
    "LABEL_NAMES",
    "PLURAL",
    "WEAK_IMAGE_NAMES",
    "WORD",
    "find_words",
    "guess_kind",
    "is_mask_name",
    "rank_name",
    "split_words",
]

IMAGE_NAMES: Final = ("image", "img", "jpeg", "jpg", "png", "webp", "picture", "photo", "pixels", "frame", "patch")
"""The image that transforms are applied to."""
WEAK_IMAGE_NAMES: Final = ("x", "data")
"""Names of images, and of other values as well: used after :data:`IMAGE_NAMES`."""
LABEL_NAMES: Final = (
    "label", "labels", "class", "class_id", "cls", "target", "targets", "y", "category", "category_id",
)  # fmt: skip
"""The class of a record, or its value."""
CLASS_NAMES: Final = ("labels", "classes", *LABEL_NAMES, "categories", "label_id", "fine_label", "coarse_label")
"""Numbers of classes: those of the objects of a record, and that of a record."""
KEY_NAMES: Final = (
    "__key__", "key", "img_name", "image_name", "imgname", "filename", "file_name", "name", "path", "file", "image_id",
    "id",
)  # fmt: skip
"""The name of a record."""
BOX_NAMES: Final = ("bbox", "bboxes", "boxes", "box")
"""Arrays of boxes."""
_WORDS: Final = {
    "boxes": " ".join(BOX_NAMES),
    "keypoints": "keypoint keypoints kpt kpts landmark landmarks joint joints point points polygon polygons",
    "mask": "mask masks segmentation segmentations seg segmap semseg depth",
}
_KIND_OF: Final = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_FORMATS: Final = frozenset({"xyxy", "xywh", "cxcywh", "2d"})
"""Words that may follow the word for the kind: boxes_xyxy."""
_WRAPPERS: Final = frozenset({"data", "bytes", "content", "encoded"})
"""Last parts of paths that say nothing where the part before them does: ``img.data``, ``image/encoded``."""
_WORD: Final = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
PLURAL: Final = 3
WORD: Final = 4
"""Ranks of a name that is the plural of a usual one, and of one of which only a word is."""


def rank_name(path: str, names: Sequence[str]) -> tuple[int, int] | None:
    """Return how well a path fits some names; the smallest rank fits best, None does not fit.

    0: the path is the first name. 1: its last part is. 2: its last part is a name in any case, the earlier the better;
    :data:`PLURAL`: the plural of one. :data:`WORD`: a word of its last part is a name.
    """
    return min(
        (rank for part in _find_names(path) if (rank := _rank_part(part, path, names)) is not None), default=None
    )


def _rank_part(part: str, path: str, names: Sequence[str]) -> tuple[int, int] | None:
    if part == names[0]:
        return (0 if part == path else 1, 0)
    lower = part.lower()
    for place, name in enumerate(names):
        if lower == name:
            return (2, place)
    for place, name in enumerate(names):
        if lower in {f"{name}s", f"{name}es"}:
            return (PLURAL, place)
    return (WORD, 0) if find_words(part) & set(names) else None


def find_words(name: str) -> set[str]:
    """The words of a name in lower case: ``train_setX`` is train, set, x."""
    return set(split_words(name))


def split_words(name: str) -> list[str]:
    """The words of a name in lower case, in order."""
    return [word.lower() for word in _WORD.findall(name)]


def is_mask_name(path: str) -> bool:
    """Return whether a path says that an image is a mask: a class, or a depth, in each pixel."""
    return any(_KIND_OF.get(word) == "mask" for part in _find_names(path) for word in find_words(part))


@functools.lru_cache(maxsize=1024)
def guess_kind(name: object) -> str | None:
    """Return the kind that the last word of a name suggests (``"gt_bboxes"``: boxes), or None."""
    words = re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+", name) if isinstance(name, str) else ()
    kept = [word.lower() for word in words if word.lower() not in _FORMATS]
    return _KIND_OF.get(kept[-1]) if kept else None


def _find_names(path: str) -> list[str]:
    """The parts of a path that name the value: the last one, and the one before it where the last one says nothing."""
    *before, last = re.split("[./]", path)
    return [last, before[-1]] if before and last.lower() in _WRAPPERS else [last]
