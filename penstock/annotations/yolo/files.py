"""The files of a YOLO source: its images, and the label file of each.

::

    images/train/1.jpg          labels/train/1.txt: the last folder `images` replaced by `labels`
    train/1.jpg                 train/1.txt: beside the image, where there is none in `labels`

No path leads out of the folders of the source: an absolute one is found by its end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from penstock.annotations.base import refuse_unknown_split
from penstock.annotations.records import RecordBuilder
from penstock.annotations.source import AnnotationSource
from penstock.annotations.yolo.description import YoloDescription, find_inside
from penstock.errors import AnnotationError
from penstock.paths import IMAGE_SUFFIXES

__all__ = ["LabelFiles", "find_images", "has_label_row"]

_SPLIT_FOLDERS: Final = ("train", "training", "val", "valid", "validation", "test")
_IMAGE_FOLDERS: Final = ("images", "JPEGImages")
_NOT_LABELS: Final = frozenset(
    {"classes", "train", "val", "valid", "test", "trainval", "notes", "license", "requirements"}
)


def find_images(
    source: AnnotationSource, builder: RecordBuilder, described: YoloDescription, split: str | None
) -> tuple[dict[Path, str | None], list[Path]]:
    """The images with their splits, in byte order of their paths, and the folders that they were found in.

    An image of several splits has the first of train, val and test.

    Raises ArgumentError if there is no such split. Raises AnnotationError if the split that was asked for, or each of
    them, leads nowhere.
    """
    if described.splits:
        found, folders = _find_described(source, builder, described, split)
    else:
        found, folders = _find_undescribed(source, split)
    return dict(sorted(found.items(), key=lambda each: os.fsencode(source.relative(each[0])))), folders


def _find_described(
    source: AnnotationSource, builder: RecordBuilder, described: YoloDescription, split: str | None
) -> tuple[dict[Path, str | None], list[Path]]:
    splits, file = described.splits, described.file or source.path
    refuse_unknown_split(split, splits)
    bases = _list_bases(source, file.parent, described.base)
    found: dict[Path, str | None] = {}
    folders: list[Path] = []
    missing = []
    by_end = source.images is not None or file.suffix.lower() == ".data"  # whose paths are of darknet's own folder
    for name, entry in ((each, entry) for each in splits if split in {None, each} for entry in splits[each]):
        place = find_inside(source, entry, bases, by_end=by_end)
        if place is None:
            missing.append((name, entry))
        elif place.is_dir():
            folders.append(place)
            for path in source.list_files(place, *IMAGE_SUFFIXES):
                found.setdefault(path, name)
        else:
            listed = list(_read_image_list(source, builder, place, bases))
            folders += sorted({path.parent for path in listed})
            for path in listed:
                found.setdefault(path, name)
    if missing and not folders:
        raise AnnotationError(
            f"{source.relative(file)}: there is nothing at {missing[0][1]!r:.300}, its {missing[0][0]}, in the folders "
            "of the source; give images= where the images lie elsewhere",
            source=str(source.root),
        )
    for name, entry in missing:
        builder.note(file, f"there is nothing at {entry!r:.300}, its {name}", effect="split left out")
    return found, list(dict.fromkeys(folders))


def _find_undescribed(source: AnnotationSource, split: str | None) -> tuple[dict[Path, str | None], list[Path]]:
    """Images of the folder; if some are in a folder `images`, only those. Splits are folders of the usual names."""
    folder = source.images or source.folder
    paths = source.list_files(folder, *IMAGE_SUFFIXES)
    inner = [path.relative_to(folder).parts[:-1] for path in paths]
    if any("images" in parts for parts in inner):
        kept = [(path, parts) for path, parts in zip(paths, inner, strict=True) if "images" in parts]
    else:
        kept = list(zip(paths, inner, strict=True))
    found = {path: next((part for part in parts if part in _SPLIT_FOLDERS), None) for path, parts in kept}
    if split is not None:
        refuse_unknown_split(split, sorted({name for name in found.values() if name}))
        found = {path: name for path, name in found.items() if name == split}
        return found, sorted({path.parent for path in found})
    return found, [folder]


def _read_image_list(
    source: AnnotationSource, builder: RecordBuilder, path: Path, bases: Iterable[Path]
) -> Iterator[Path]:
    for number, line in source.read_lines(path):
        found = source.find_image(line, path.parent, *bases)
        if found is None:
            builder.note(path, f"there is no image {line!r:.300}", number, image=line[:300])
        else:
            yield found


def _list_bases(source: AnnotationSource, folder: Path, base: str) -> list[Path]:
    found = find_inside(source, base, (folder,), by_end=False) if base else None
    bases = [found, folder, source.images, source.root]
    return list(dict.fromkeys(each for each in bases if each is not None and each.is_dir()))


class LabelFiles:
    """Finds the label file of each image, and remembers which were found.

    ``source``: where they are.
    """

    def __init__(self, source: AnnotationSource) -> None:
        self._source = source
        # annotations and images were given as two folders
        apart = source.path.is_dir() and source.images is not None and source.path != source.images
        self._folder = source.path if apart else None
        self._found: set[Path] = set()

    def find(self, image: Path) -> Path | None:
        """The label file of an image; None if it has none."""
        found = next((path for path in self._list_candidates(image) if os.path.lexists(path)), None)
        if found is not None:
            self._found.add(found)
        return found

    def list_unpaired(self, folders: Iterable[Path]) -> list[Path]:
        """Label files of folders of images that belong to no image, in order."""
        places = {place for folder in folders for place in (folder, *self._list_replaced(folder))}
        if self._folder is not None:
            places.add(self._folder)
        listed = {path for place in places if place.is_dir() for path in self._source.list_files(place, ".txt")}
        return sorted(path for path in listed - self._found if self._is_label(path) and not self._has_image(path))

    def _list_candidates(self, image: Path) -> Iterator[Path]:
        if self._folder is not None and self._source.images is not None and image.is_relative_to(self._source.images):
            yield from _with_suffixes(self._folder / image.relative_to(self._source.images))
            yield from _with_suffixes(self._folder / image.name)
        for replaced in self._list_replaced(image.parent):
            yield from _with_suffixes(replaced / image.name)
        yield from _with_suffixes(image)

    def _list_replaced(self, folder: Path) -> Iterator[Path]:
        """The folder with its last part `images` replaced by `labels`, below the root of the source."""
        if not folder.is_relative_to(self._source.root):
            return
        parts = folder.relative_to(self._source.root).parts
        for name in _IMAGE_FOLDERS:
            if name in parts:
                last = len(parts) - 1 - parts[::-1].index(name)
                yield self._source.root.joinpath(*parts[:last], "labels", *parts[last + 1 :])

    def _has_image(self, path: Path) -> bool:
        return any(path in self._list_candidates(image) for image in self._source.image_files.get(path.stem, ()))

    def _is_label(self, path: Path) -> bool:
        """Whether a text is meant as labels: all in a folder of labels, and those of numbers beside images."""
        if path.stem.lower() in _NOT_LABELS or path.stem.lower().startswith("readme"):
            return False
        if self._folder is not None or "labels" in path.relative_to(self._source.root).parts:
            return True
        return has_label_row(self._source, path)


def has_label_row(source: AnnotationSource, path: Path) -> bool:
    """Whether the first line of a text has a class number and four or more numbers."""
    try:
        line = next((line for _, line in source.read_lines(path)), "")
        number, *others = [float(part) for part in line.split()]
    except ValueError:
        return False
    return len(others) >= 4 and number.is_integer()


def _with_suffixes(path: Path) -> Iterator[Path]:
    yield path.with_suffix(".txt")
    yield path.with_suffix(".TXT")
