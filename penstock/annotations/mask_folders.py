"""Folders of images with folders of masks: Cityscapes, ADE20K, VOC's SegmentationClass, and any two alike.

::

    leftImg8bit/train/ulm/a_leftImg8bit.png    gtFine/train/ulm/a_gtFine_labelIds.png    Cityscapes
    images/training/a.jpg                      annotations/training/a.png                ADE20K
    JPEGImages/a.jpg                           SegmentationClass/a.png                   VOC; ImageSets/Segmentation
    images/train/a.jpg                         masks/train/a.png or a_mask.png           folders of the same names
    train/images/a.jpg                         train/masks/a.png

A mask is a PNG whose pixels are numbers of classes: gray values, or places in its palette. Its path becomes the field
``mask``; the file is neither decoded nor written again. ``classes[v]`` is the name of the value v, where the source
lists names; those of Cityscapes and VOC are known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.annotations.base import AnnotationFormat, refuse_unknown_split
from penstock.annotations.records import RecordBuilder
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError
from penstock.paths import IMAGE_SUFFIXES

__all__ = ["MaskFoldersFormat"]

# fmt: off
CITYSCAPES: Final = (
    "unlabeled", "ego vehicle", "rectification border", "out of roi", "static", "dynamic", "ground", "road",
    "sidewalk", "parking", "rail track", "building", "wall", "fence", "guard rail", "bridge", "tunnel", "pole",
    "polegroup", "traffic light", "traffic sign", "vegetation", "terrain", "sky", "person", "rider", "car", "truck",
    "bus", "caravan", "trailer", "train", "motorcycle", "bicycle",
)
"""The ids 0 to 33; the 35th class, "license plate", has the id -1 and is in no mask."""
CITYSCAPES_TRAINING: Final = (
    "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation", "terrain",
    "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
)
"""The training ids 0 to 18; 255 is to be ignored."""
VOC: Final = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
"""The values 0 to 20; 255 is the border of an object, to be ignored."""
# fmt: on

_FILES: Final = ("labelmap.txt", "objectInfo150.txt", "classes.txt", "class_names.txt", "labels.txt")
_IGNORED: Final = "__ignore__"
_REST: Final = "other"
"""The value 0 of ADE20K: everything that is none of its classes."""
_IMAGE_FOLDERS: Final = ("images", "image", "imgs", "img", "JPEGImages")
_MASK_FOLDERS: Final = ("masks", "mask", "annotations", "labels", "SegmentationClass")
_ENDINGS: Final = ("", "_mask", "_masks", "_label", "_labels", "_seg", "_gt", "_L")
_VOC_STEM: Final = re.compile(r"\d{4}_\d{6}|\d{6}")
_NUMBER_MODES: Final = frozenset({"1", "L", "P", "I", "I;16", "I;16B"})
_CITYSCAPES_IMAGE: Final = "_leftImg8bit"
_CITYSCAPES_MASKS: Final = {"_labelIds": CITYSCAPES, "_labelTrainIds": CITYSCAPES_TRAINING}


@dataclass(frozen=True, slots=True)
class _Pair:
    """An image, by name and path, its mask and its split; either path may be missing."""

    name: str
    image: Path | None
    mask: Path | None
    split: str | None


@dataclass(frozen=True, slots=True)
class _MaskLayout:
    """What a source was found to be."""

    pairs: list[_Pair]
    unpaired: list[Path]
    """Masks of no image."""
    classes: Sequence[str] | None = None
    """Names that the layout implies."""


class MaskFoldersFormat(AnnotationFormat):
    """Reads folders of images and masks.

    Parameters
    ----------
    mask_suffix : str, optional
        What the names of masks have after those of their images ("_mask"); by default several usual ones are tried.
    """

    name = "mask_folders"
    lists_images = False

    def __init__(self, *, mask_suffix: str | None = None) -> None:
        self._endings = _ENDINGS if mask_suffix is None else (mask_suffix,)

    @classmethod
    def recognises(cls, source: AnnotationSource) -> bool:
        """Two folders of the names that these layouts have, one with a PNG."""
        if source.path.is_file():
            return False
        if source.images is not None:
            return source.images != source.folder and _has_png(source.folder)
        if (source.folder / "leftImg8bit").is_dir() or (source.folder / "SegmentationClass").is_dir():
            return True
        return any(_has_png(masks) for _, masks, _ in _find_folders(source))

    def read(self, source: AnnotationSource, builder: RecordBuilder, split: str | None) -> None:
        """Add all images; see :meth:`AnnotationFormat.read`."""
        layout = self._find_layout(source, split)
        refuse_unknown_split(split, sorted({pair.split for pair in layout.pairs if pair.split is not None}))
        found = read_mask_classes(source) or MaskClasses(layout.classes)
        if found.names is not None:
            builder.set_classes(found.names)
        if found.colors is not None:
            builder.details["mask_colors"] = found.colors
        for pair in layout.pairs:
            if split is None or pair.split == split:
                _add_pair(source, builder, pair, has_colors=found.colors is not None)
        for mask in layout.unpaired if split is None else ():
            builder.note(mask, "there is no image of this mask", effect="mask left out")

    def _find_layout(self, source: AnnotationSource, split: str | None) -> _MaskLayout:
        folder = source.folder
        if source.images is not None and source.images != folder:
            return _pair_folders(source, [(source.images, folder, None)], self._endings)
        if (folder / "leftImg8bit").is_dir():
            return _pair_cityscapes(source, folder)
        if (folder / "SegmentationClass").is_dir() and not (folder / "images").is_dir():
            return _pair_voc(source, folder, split)
        if folders := _find_folders(source):
            return _pair_folders(source, folders, self._endings)
        raise AnnotationError(
            f"there must be a folder of images ({', '.join(_IMAGE_FOLDERS)}) and one of masks "
            f"({', '.join(_MASK_FOLDERS)}); give both as "
            '{"images": ..., "annotations": ...} where they have other names',
            source=str(source.root),
        )


def _has_png(folder: Path) -> bool:
    """Return whether there is a PNG in a folder or in those below it, three deep at most; hidden ones are no masks."""
    below = [folder]
    for _ in range(3):
        held = [each for parent in below for each in _list_folder(parent)]
        if any(each.suffix.lower() == ".png" and each.is_file() for each in held):
            return True
        below = [each for each in held if each.is_dir()]
    return False


def _list_folder(folder: Path) -> list[Path]:
    """Return what lies in a folder, without hidden names; nothing if it cannot be listed."""
    try:
        return sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError:
        return []


def _find_folders(source: AnnotationSource) -> list[tuple[Path, Path, str | None]]:
    """Folders of images and masks side by side, at the top or in the folder of each split, which is the third value."""
    folder = source.folder
    parents: list[tuple[Path, str | None]] = [(folder, None)]
    parents += [(each, each.name) for each in _list_folder(folder) if each.is_dir()]
    found = []
    for parent, split in parents:
        images = next((parent / name for name in _IMAGE_FOLDERS if (parent / name).is_dir()), None)
        masks = next((parent / name for name in _MASK_FOLDERS if (parent / name).is_dir()), None)
        if images is not None and masks is not None:
            found.append((images, masks, split))
        if found and split is None:
            break
    return found


def _pair_folders(
    source: AnnotationSource, folders: Sequence[tuple[Path, Path, str | None]], endings: Sequence[str]
) -> _MaskLayout:
    pairs: list[_Pair] = []
    unpaired: list[Path] = []
    for images, masks, split in folders:
        by_name: dict[tuple[Path, str], Path] = {}
        by_stem: dict[str, list[Path]] = {}
        # a PNG last, so that it is the one that is taken
        for path in sorted(source.list_files(masks, *IMAGE_SUFFIXES), key=lambda path: path.suffix.lower() == ".png"):
            by_name[path.relative_to(masks).parent, path.stem] = path
            by_stem.setdefault(path.stem, []).append(path)
        left = set(by_name.values())
        for path in source.list_files(images, *IMAGE_SUFFIXES):
            if path.is_relative_to(masks):
                continue
            inner = path.relative_to(images)
            names = [f"{name}{ending}" for ending in endings for name in (path.stem, path.name)]
            mask = next((found for name in names if (found := by_name.get((inner.parent, name))) is not None), None)
            if mask is None:
                several = next((by_stem[name] for name in names if name in by_stem), [])
                several = [each for each in several if source.is_of_split(each.parent, source.relative(path.parent))]
                mask = several[0] if len(several) == 1 else None
            if mask is not None:
                left.discard(mask)
            part = inner.parts[0] if len(inner.parts) > 1 and (masks / inner.parts[0]).is_dir() else None
            pairs.append(_Pair(source.relative(path), path, mask, split or part))
        unpaired += sorted(left)
    return _MaskLayout(pairs, unpaired)


def _pair_cityscapes(source: AnnotationSource, folder: Path) -> _MaskLayout:
    """Images by split and city; masks are those of class ids, or of training ids where there are no others."""
    masks = next((folder / name for name in ("gtFine", "gtCoarse") if (folder / name).is_dir()), folder / "gtFine")
    found = source.list_files(masks, ".png") if masks.is_dir() else []
    ending = next((each for each in _CITYSCAPES_MASKS if any(path.stem.endswith(each) for path in found)), "_labelIds")
    end = f"_{masks.name}{ending}"
    by_name = {
        (path.relative_to(masks).parent, path.stem.removesuffix(end)): path for path in found if path.stem.endswith(end)
    }
    pairs = []
    for path in source.list_files(folder / "leftImg8bit", *IMAGE_SUFFIXES):
        inner = path.relative_to(folder / "leftImg8bit")
        mask = by_name.pop((inner.parent, path.stem.removesuffix(_CITYSCAPES_IMAGE)), None)
        pairs.append(_Pair(source.relative(path), path, mask, inner.parts[0] if len(inner.parts) > 1 else None))
    return _MaskLayout(pairs, sorted(by_name.values()), _CITYSCAPES_MASKS[ending])


def _pair_voc(source: AnnotationSource, folder: Path, split: str | None) -> _MaskLayout:
    """Return the masks, most images of VOC have none; with a split, what its list names."""
    images: dict[str, Path] = {}
    for path in source.list_files(folder / "JPEGImages", *IMAGE_SUFFIXES):
        images.setdefault(path.stem, path)
    masks = {path.stem: path for path in source.list_files(folder / "SegmentationClass", ".png")}
    lists = {path.stem: path for path in sorted((folder / "ImageSets" / "Segmentation").glob("*.txt"))}
    names: dict[str, str | None] = dict.fromkeys(masks)
    for part in ("trainval", *(name for name in lists if name != "trainval")):
        if part in lists and split in {None, part}:
            names |= dict.fromkeys((line.split()[0] for _, line in source.read_lines(lists[part])), part)
    pairs = [
        _Pair(source.relative(images[name]), images[name], masks.get(name), part)
        if name in images
        else _Pair(name, None, masks.get(name), part)
        for name, part in names.items()
    ]
    is_voc = bool(masks) and all(_VOC_STEM.fullmatch(name) for name in masks)
    return _MaskLayout(pairs, [], VOC if is_voc else None)


def _add_pair(source: AnnotationSource, builder: RecordBuilder, pair: _Pair, *, has_colors: bool) -> None:
    if pair.mask is None:
        builder.note(pair.image or pair.name, "there is no mask of this image", image=pair.name)
        return
    try:
        size = _read_mask_size(source, pair.mask, has_colors=has_colors)
    except ValueError as error:
        builder.note(pair.mask, str(error), image=pair.name)
        return
    mask = source.relative(pair.mask)
    builder.image(pair.name, pair.image, file=pair.mask, size=size, mask=mask, split=pair.split)


def _read_mask_size(source: AnnotationSource, path: Path, *, has_colors: bool) -> tuple[int, int]:
    """Return the width and height of a mask by its header; ValueError if it is no PNG of class numbers."""
    try:
        with source.open_image(path) as image:
            size, mode, kind = image.size, image.mode, image.format
    except Exception as error:  # noqa: BLE001  # Pillow raises errors of many kinds for damaged files
        raise ValueError(f"the mask is no image: {type(error).__name__}: {error!s:.300}") from None
    if kind != "PNG":
        raise ValueError(f"the mask must be a PNG, got {kind}")
    if mode not in _NUMBER_MODES and not (has_colors and mode in {"RGB", "RGBA"}):
        raise ValueError(
            f"the pixels of the mask must be numbers of classes, gray or in a palette, got {mode}; colors need a "
            "labelmap.txt that names them"
        )
    return size


@dataclass(frozen=True, slots=True)
class MaskClasses:
    """Names by the values of pixels, and the colors that stand for them in masks of three channels."""

    names: Sequence[str] | None  # None if they are not known
    colors: list[tuple[int, int, int]] | None = None  # red, green and blue of each class


def read_mask_classes(source: AnnotationSource) -> MaskClasses | None:
    """Return the classes that a file of the source lists: a label map of CVAT, ADE20K's table, or a name a line.

    Raises AnnotationError if the file cannot be read, or has a line of another kind.
    """
    folders = (source.folder, source.root)
    paths = [folder / name for folder in folders for name in _FILES] if source.classes is None else [source.classes]
    for path in paths:
        if source.classes is not None or path.is_file():
            return _read_file(source, path)
    return None


def _read_file(source: AnnotationSource, path: Path) -> MaskClasses:
    lines = [(number, line) for number, line in source.read_lines(path) if not line.startswith("#")]
    try:
        if lines and all("\t" in line for _, line in lines):
            found = MaskClasses(_read_table(lines))
        elif lines and all(line.count(":") >= 1 for _, line in lines):
            found = _read_label_map(lines)
        else:
            found = MaskClasses([line for _, line in lines if line != _IGNORED])
    except ValueError as error:
        raise AnnotationError(f"{source.relative(path)}:{error}", source=str(source.root)) from None
    names = found.names or ()
    if len(set(names)) != len(names):
        (twice, _), *_ = Counter(names).most_common(1)
        raise AnnotationError(
            f"{source.relative(path)}: classes must have different names, got {twice!r:.100} twice",
            source=str(source.root),
        )
    return found


def _read_table(lines: Sequence[tuple[int, str]]) -> list[str]:
    """Read ADE20K's table: a heading, then number, ..., name; the numbers begin with 1."""
    names = [_REST]
    for position, (number, line) in enumerate(lines):
        cells = [cell.strip() for cell in line.split("\t")]
        if position == 0 and not cells[0].isdecimal():
            continue
        if cells[0] != str(len(names)):
            raise ValueError(f"{number}: the class must have the number {len(names)}, got {cells[0]!r:.100}")
        names.append(cells[-1])
    return names


def _read_label_map(lines: Sequence[tuple[int, str]]) -> MaskClasses:
    """CVAT's label map: ``name:red,green,blue:parts:actions``; the color may be missing."""
    names, colors = [], []
    for number, line in lines:
        name, _, rest = line.partition(":")
        cells = [cell.strip() for cell in rest.partition(":")[0].split(",")]
        names.append(name.strip())
        if cells != [""]:
            if len(cells) != 3 or not all(cell.isascii() and cell.isdecimal() and len(cell) < 4 for cell in cells):
                raise ValueError(f"{number}: a color must be red, green and blue, got {rest!r:.100}")
            red, green, blue = (int(cell) for cell in cells)
            if max(red, green, blue) > 255:
                raise ValueError(f"{number}: a color must be in [0, 255], got {rest!r:.100}")
            colors.append((red, green, blue))
    return MaskClasses(names, colors if len(colors) == len(names) else None)
