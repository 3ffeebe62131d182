"""COCO: a JSON file of images, annotations and categories; and panoptic images, a PNG file for each image.

::

    dataset/annotations/instances_train2017.json    images: id, file_name, width, height
    dataset/train2017/000000000009.jpg              annotations: image_id, category_id, bbox, segmentation, keypoints
    dataset/annotations/panoptic_train2017/9.png    categories: id, name, keypoints, skeleton

Images are in the order of their ids, objects in that of the file; labels are positions in the order of category ids.
Each value of an object is checked, since in JSON it may be of any type.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from penstock.annotations.base import AnnotationFormat
from penstock.annotations.coco.files import TASKS, CocoFile, find_files, has_coco_content
from penstock.annotations.numbers import parse_int, parse_number
from penstock.annotations.polygons import MAX_COORDINATE, Polygons
from penstock.annotations.records import ImageObjects, RecordBuilder
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError, ArgumentError, check_choice
from penstock.run_lengths import format_counts, parse_counts
from penstock.sample import Array, Value

__all__ = ["CocoFormat"]

_MAX_WAITING: Final = 2048
"""Objects whose masks are made at once."""
ObjectId = int | str
_USED: Final = frozenset(
    {"id", "image_id", "category_id", "bbox", "segmentation", "area", "iscrowd", "keypoints", "num_keypoints"}
)
_MAX_DIGITS: Final = 20
_MIN_NUMBERS: Final = 6
"""Of a ring: three corners."""


class CocoFormat(AnnotationFormat):
    """Reads COCO.

    Parameters
    ----------
    task : {"instances", "keypoints", "panoptic", "stuff", "captions", "image_info"}, optional
        Which files of a folder to read, by the beginning of their names; by default the first of these that there are.
    drop_empty_parents : bool, optional
        Whether a category without objects that all others name as their supercategory is left out, as the first one of
        Roboflow's exports. By default it is a class, and a warning says so.
    """

    name = "coco"

    def __init__(self, *, task: str | None = None, drop_empty_parents: bool | None = None) -> None:
        check_choice("task", task, TASKS, optional=True)
        self._task, self._drops_parents = task, drop_empty_parents

    @classmethod
    def recognises(cls, source: AnnotationSource) -> bool:
        """JSON files with a list of images, annotations or categories, by their beginning."""
        if source.path.is_file():
            return source.path.suffix.lower() == ".json" and has_coco_content(source, source.path)
        try:
            return bool(find_files(source, None, None))
        except (AnnotationError, ArgumentError):
            return False

    def read(self, source: AnnotationSource, builder: RecordBuilder, split: str | None) -> None:
        """Add all images; see :meth:`AnnotationFormat.read`."""
        files = find_files(source, self._task, split)
        self.read_contents(source, builder, ((file, source.read_json(file.path)) for file in files))

    def read_contents(
        self, source: AnnotationSource, builder: RecordBuilder, contents: Iterable[tuple[CocoFile, object]]
    ) -> None:
        """:meth:`read`, of the content of files that is in memory."""
        categories = _Categories(source, builder)
        try:
            for file, given in contents:
                content = _check_content(given, source.relative(file.path))
                known = categories.read(content, file.path)
                _FileReader(source, builder, file, known).read(content)
        except RecursionError as error:
            raise AnnotationError("the JSON is nested too deep", source=str(source.root)) from error
        categories.finish(drops_parents=self._drops_parents)


def _check_content(given: object, shown: str) -> dict[str, Value]:
    """Return the content of a file, whose lists are lists; the name of the file is for errors."""
    if not isinstance(given, dict) or "images" not in given:
        raise AnnotationError(f"{shown} must be a JSON object with images, annotations and categories")
    content = {"annotations": [], "categories": [], **given}
    for name in ("images", "annotations", "categories"):
        if not isinstance(content[name], list):
            raise AnnotationError(f"the {name} of {shown} must be a list, got {content[name]!r:.100}")
    if content["annotations"] and not content["categories"]:
        if any(isinstance(each, dict) and "caption" in each for each in content["annotations"]):
            raise AnnotationError(f"{shown} has captions, which are no objects; give a file of instances")
        raise AnnotationError(f"{shown} has annotations, but no categories")
    return content


class _Categories:
    """The categories of all files, which must agree."""

    def __init__(self, source: AnnotationSource, builder: RecordBuilder) -> None:
        self._source, self._builder = source, builder
        self._held: dict[ObjectId, CocoCategory] = {}
        self._skeletons: dict[str, tuple[tuple[int, int], ...]] = {}
        self._ids: dict[str, ObjectId] = {}
        self._parents: dict[str, Value] = {}
        self._used: Counter[Value] = Counter()
        self._crowds = 0

    def read(self, content: Mapping[str, Value], path: Path) -> dict[ObjectId, CocoCategory]:
        """Return the categories of a file, by id."""
        found: dict[ObjectId, CocoCategory] = {}
        for row, given in enumerate(content["categories"]):
            where = f"categories[{row}]: "
            try:
                number, category = _parse_category(given)
                if number in found:
                    raise ValueError(f"its id {number!r:.100} is used before")  # noqa: TRY301  # one handler
            except ValueError as error:
                self._builder.note(path, f"{where}{error}", effect="category left out")
                continue
            if (held := self._held.setdefault(number, category)).name != category.name:
                raise AnnotationError(
                    f"category {number!r:.100} is {held.name!r:.100} in one file, and {category.name!r:.100} in "
                    f"{self._source.relative(path)}; give split= to read one of them"
                )
            if self._ids.setdefault(category.name, number) != number:
                reason = f"{where}its name {category.name!r:.100} is that of category {self._ids[category.name]!r:.100}"
                self._builder.note(path, reason, effect="categories joined")
            found[number] = category
            self._parents[category.name] = given.get("supercategory")
            self._read_skeleton(given, category, path, where)
        for one in _list_objects(content["annotations"]):
            if isinstance(one.get("category_id"), int | str):
                self._used[one["category_id"]] += 1
            self._crowds += one.get("iscrowd") == 1
        return found

    def finish(self, *, drops_parents: bool | None = None) -> None:
        """Set the classes and what is known of them; warn of what a model would learn wrongly."""
        if (parent := self._find_empty_parent()) is not None and drops_parents:
            del self._ids[parent]
        elif parent is not None and drops_parents is None and self._builder.classes is None:
            _warn(
                f"the category {parent!r:.100} has no object, and all others name it as their supercategory, as "
                "Roboflow writes it: it is a class, which shifts the numbers of others; drop_empty_parents=True leaves "
                "it out, and False keeps it"
            )
        if self._crowds and self._crowds == self._used.total():
            _warn(
                f"all objects ({self._crowds}) have iscrowd=1, as CVAT writes masks: batch_form= leaves crowds out of "
                'batches where fields= has "crowd"; penstock.BatchForm(name, keep_crowds=True) keeps them'
            )
        ids = sorted(self._ids.values(), key=_order)
        self._builder.set_classes([self._held[number].name for number in ids])
        classes = self._builder.classes or ()
        details = self._builder.details
        details["category_ids"] = tuple(self._ids.get(name) for name in classes)
        by_name = {each.name: each for each in self._held.values()}
        points = {name: by_name[name].keypoints for name in classes if name in by_name and by_name[name].keypoints}
        if points:
            skeletons = {name: self._skeletons.get(name, ()) for name in points}
            details["keypoint_names"] = _join(points)
            details["skeleton"] = _join(skeletons)
        if any(each.is_thing is not None for each in self._held.values()):
            details["is_thing"] = tuple(by_name[name].is_thing if name in by_name else None for name in classes)

    def _find_empty_parent(self) -> str | None:
        """Return the category without objects that all others name as their supercategory; None if there is none."""
        first = list(self._parents.values())[:2]  # one of these two is another category than the parent, and names it
        for name, number in self._ids.items():
            others = [parent for each, parent in self._parents.items() if each != name] if name in first else []
            if others and not self._used[number] and all(parent == name for parent in others):
                return name
        return None

    def _read_skeleton(self, given: Mapping[str, Value], category: CocoCategory, path: Path, where: str) -> None:
        try:
            self._skeletons[category.name] = parse_skeleton(given, len(category.keypoints))
        except ValueError as error:
            self._builder.note(path, f"{where}{error}", effect="skeleton left out")


def _list_objects(annotations: list[Value]) -> Iterator[dict[str, Value]]:
    """Yield the annotations that are objects; of panoptic images their segments."""
    for each in annotations:
        segments = each.get("segments_info") if isinstance(each, dict) and "segments_info" in each else [each]
        yield from (one for one in (segments if isinstance(segments, list) else ()) if isinstance(one, dict))


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=6)  # who calls `penstock.annotations.read`


def _parse_category(given: object) -> tuple[ObjectId, CocoCategory]:
    if not isinstance(given, dict):
        raise ValueError(f"it must be an object, got {given!r:.100}")  # noqa: TRY004  # the file is wrong
    return parse_id(given.get("id"), "id"), parse_category(given)


def _join(values: Mapping[str, tuple[Value, ...]]) -> Value:
    """Return the value of all classes if it is the same, else the values by class."""
    different = set(values.values())
    return next(iter(different)) if len(different) == 1 else dict(values)


def _order(number: ObjectId) -> tuple[bool, ObjectId]:
    """Numbers before texts, which cannot be compared with them."""
    return isinstance(number, str), number


class _FileReader:
    """Reads the images and annotations of one file."""

    def __init__(
        self,
        source: AnnotationSource,
        builder: RecordBuilder,
        file: CocoFile,
        categories: Mapping[ObjectId, CocoCategory],
    ) -> None:
        self._source, self._builder, self._file, self._categories = source, builder, file, categories
        self._folders = file.list_folders(source)
        self._waiting: list[tuple[ImageObjects, str, CocoObject]] = []

    def read(self, content: Mapping[str, Value]) -> None:
        """Add the images of the file to the records."""
        images = self._index_images(content["images"])
        annotations = self._group(content["annotations"], images)
        is_panoptic = any(isinstance(each, dict) and "segments_info" in each for each in content["annotations"][:1])
        masks = self._file.list_folders(self._source, self._file.path.stem) if is_panoptic else ()
        for number in sorted(images, key=_order):
            held = annotations[number]
            if is_panoptic:
                self._read_panoptic(number, images[number], held, masks)
            elif (image := self._begin_image(number, images[number])) is not None:
                self._read_objects(image, held, "annotation", "annotation_id")
        self._flush()

    def _index_images(self, given: list[Value]) -> dict[ObjectId, dict[str, Value]]:
        images: dict[ObjectId, dict[str, Value]] = {}
        for row, image in enumerate(given):
            try:
                if not isinstance(image, dict):
                    raise ValueError(f"it must be an object, got {image!r:.100}")  # noqa: TRY004, TRY301  # one handler
                number = parse_id(image.get("id"), "id")
                if number in images:
                    raise ValueError(f"its id {number!r:.100} is used before")  # noqa: TRY301  # one handler
            except ValueError as error:
                self._builder.note(self._file.path, f"images[{row}]: {error}")
                continue
            images[number] = image
        return images

    def _group(self, given: list[Value], images: Mapping[ObjectId, Value]) -> dict[ObjectId, list[dict[str, Value]]]:
        """Return the annotations of each image."""
        groups: dict[ObjectId, list[dict[str, Value]]] = {number: [] for number in images}
        for row, annotation in enumerate(given):
            try:
                if not isinstance(annotation, dict):
                    raise ValueError(f"it must be an object, got {annotation!r:.100}")  # noqa: TRY004, TRY301
                number = parse_id(annotation.get("image_id"), "image_id")
                if number not in groups:
                    other = name_other_type(number, groups)
                    raise ValueError(f"there is no image of its image_id {number!r:.100}{other}")  # noqa: TRY301
            except ValueError as error:
                self._builder.note(self._file.path, f"annotations[{row}]: {error}", effect="object left out")
                continue
            groups[number].append(annotation)
        return groups

    def _begin_image(
        self, number: ObjectId, given: Mapping[str, Value], mask: Path | None = None
    ) -> ImageObjects | None:
        """Begin an image; None if something is wrong with it."""
        path = self._file.path
        name = _find_name(given)
        where = f"image {number!r:.100}: "
        if name is None:
            self._builder.note(path, f"{where}its file_name must be a text, got {given.get('file_name')!r:.100}")
            return None
        try:
            width, height = (parse_int(given.get(side) or 0, side) for side in ("width", "height"))
            if mask is not None:
                width, height = self._check_mask(mask, width, height)
        except ValueError as error:
            self._builder.note(path, f"{where}{error}", image=name)
            return None
        found = self._source.find_image(name, *self._folders, split=self._file.split)
        return self._builder.image(
            name, found, file=path, size=(width, height), id=number, split=self._file.split,
            mask=None if mask is None else self._source.relative(mask),
        )  # fmt: skip

    def _check_mask(self, mask: Path, width: int, height: int) -> tuple[int, int]:
        """Return the size of a mask, which must be that of its image; ValueError if it is not."""
        try:
            size = self._source.measure_image(mask).size
        except ValueError as error:
            raise ValueError(f"its mask {mask.name!r:.300}: {error}") from error
        if width and height and size != (width, height):
            raise ValueError(f"its mask {mask.name!r:.300} has {size[0]} x {size[1]}, the image has {width} x {height}")
        return size

    def _read_objects(self, image: ImageObjects, given: list[dict[str, Value]], what: str, field: str) -> None:
        """Parse the objects of an image, which are added with those of other images, when their masks are made."""
        seen: set[ObjectId] = set()
        for annotation in given:
            number = annotation.get("id")
            where = f"{what} {number!r:.100}: "
            try:
                if number is not None or field == "segments":
                    number = parse_id(number, "id")
                    if number in seen:
                        raise ValueError("its id is used before")  # noqa: TRY301  # one handler
                    seen.add(number)
                made = parse_object(annotation, self._categories, image.height, image.width)
            except ValueError as error:
                image.note(f"{where}{error}")
                continue
            made.fields[field] = number
            self._waiting.append((image, where, made))
        if len(self._waiting) >= _MAX_WAITING:
            self._flush()

    def _read_panoptic(
        self, number: ObjectId, given: Mapping[str, Value], held: list[dict[str, Value]], folders: tuple[Path, ...]
    ) -> None:
        if len(held) != 1:
            reason = f"image {number!r:.100}: it must have one annotation, got {len(held)}"
            self._builder.note(self._file.path, reason, image=_find_name(given))
            return
        name, segments = held[0].get("file_name"), held[0].get("segments_info")
        mask = self._source.find_image(name, *folders, split=self._file.split) if isinstance(name, str) else None
        if mask is None or not isinstance(segments, list):
            reason = f"there is no mask {name!r:.300}" if mask is None else "its segments_info must be a list"
            self._builder.note(self._file.path, f"image {number!r:.100}: {reason}", image=_find_name(given))
            return
        image = self._begin_image(number, given, mask)
        if image is None:
            return
        objects = []
        for row, segment in enumerate(segments):
            if isinstance(segment, dict):
                objects.append(segment)
            else:
                image.note(f"segments_info[{row}]: it must be an object, got {segment!r:.100}")
        self._read_objects(image, objects, "segment", "segments")

    def _flush(self) -> None:
        """Add the objects that wait for their masks."""
        waiting, self._waiting = self._waiting, []
        masks = dict(_make_masks(waiting))
        for row, (image, where, made) in enumerate(waiting):
            counts, reason = masks.get(row, (None, None))
            if reason is not None:
                image.note(f"{where}{reason}")
                continue
            instance = None if counts is None else {"size": [image.height, image.width], "counts": counts}
            image.add(
                made.label, made.box, where=where, keypoints=made.keypoints, instance=instance, area=made.area,
                crowd=made.is_crowd, attributes=made.fields,
            )  # fmt: skip


def _make_masks(
    waiting: list[tuple[ImageObjects, str, CocoObject]],
) -> Iterator[tuple[int, tuple[str | None, str | None]]]:
    """The counts of each object that has polygons or counts, by its position; or why there are none."""
    rows = [row for row, (_, _, made) in enumerate(waiting) if made.rings]
    heights = np.array([waiting[row][0].height for row in rows], np.int64)
    widths = np.array([waiting[row][0].width for row in rows], np.int64)
    owners = np.repeat(np.arange(len(rows)), [len(waiting[row][2].rings) for row in rows])
    rings = [ring for row in rows for ring in waiting[row][2].rings]
    for row, text in zip(rows, Polygons(rings, owners, heights, widths).encode(), strict=True):
        yield row, (text, "its polygons have too many and too long edges" if text is None else None)
    rows = [row for row, (_, _, made) in enumerate(waiting) if made.counts is not None]
    sizes = np.array([waiting[row][0].height * waiting[row][0].width for row in rows], np.int64)
    runs, wrong = parse_counts([waiting[row][2].counts for row in rows], sizes)
    for number, (row, text) in enumerate(zip(rows, format_counts(runs), strict=True)):
        reason = f"the counts of its segmentation {wrong[number]}" if number in wrong else None
        yield row, (text, reason)


def _find_name(given: Mapping[str, Value]) -> str | None:
    """The name of an image's file; that of its address where it has none, as in LVIS."""
    name, address = given.get("file_name"), given.get("coco_url")
    if name is None and isinstance(address, str):
        return "/".join(address.split("/")[-2:])
    return name if isinstance(name, str) and name else None


@dataclass(frozen=True, slots=True)
class CocoCategory:
    """A category: its name, and the names of its keypoints."""

    name: str
    keypoints: tuple[str, ...] = ()
    is_thing: bool | None = None


@dataclass(slots=True)
class CocoObject:
    """An annotation, or a segment of a panoptic image; its polygons or counts are not masks yet."""

    label: str
    box: tuple[float, float, float, float]
    area: float | None
    is_crowd: bool
    keypoints: Array | None
    rings: list[Array] = field(default_factory=list)
    counts: Value = None
    fields: dict[str, Value] = field(default_factory=dict)


def parse_id(value: object, what: str) -> ObjectId:
    """Return an id: a whole number or a text; ValueError if it is neither."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError(f"its {what} must be a whole number or a text, got {value!r:.100}")
    return value


def name_other_type(number: ObjectId, known: Container[ObjectId]) -> str:
    """The end of an error about an unknown id: that it is known as a text in place of a number, or reverse."""
    digits = str(number)
    if not digits.removeprefix("-").isdecimal() or len(digits) > _MAX_DIGITS:
        return ""
    other: ObjectId = int(digits) if isinstance(number, str) else digits
    of, to = ("text", "number") if isinstance(number, str) else ("number", "text")
    return f", a {of}, but of {other!r}, a {to}; write both as numbers" if other in known else ""


def parse_object(
    given: Mapping[str, Value], categories: Mapping[ObjectId, CocoCategory], height: int, width: int
) -> CocoObject:
    """Return an object of an image.

    Raises
    ------
    ValueError
        Says what is wrong with it.
    """
    number = parse_id(given.get("category_id"), "category_id")
    category = categories.get(number)
    if category is None:
        other = name_other_type(number, categories)
        raise ValueError(f"there is no category of its category_id {number!r:.100}{other}")
    crowd = given.get("iscrowd")
    if crowd is not None and crowd not in (0, 1):
        raise ValueError(f"its iscrowd must be 0 or 1, got {crowd!r:.100}")
    area = given.get("area")
    made = CocoObject(
        category.name,
        _parse_box(given.get("bbox")),
        None if area is None else parse_number(area, "area"),
        bool(crowd),
        _parse_keypoints(given.get("keypoints"), category),
    )
    _parse_segmentation(made, given.get("segmentation"), height, width)
    if len(given) > len(_USED) or not given.keys() <= _USED:
        made.fields = {name: value for name, value in given.items() if name not in _USED}
    return made


def _parse_box(given: object) -> tuple[float, float, float, float]:
    if not isinstance(given, list) or len(given) != 4:
        raise ValueError(f"its bbox must have four numbers, got {given!r:.100}")
    x, y, width, height = (parse_number(each, "bbox") for each in given)
    return x, y, x + width, y + height


def _parse_keypoints(given: object, category: CocoCategory) -> Array | None:
    if given is None or given == []:
        return None
    if not isinstance(given, list) or len(given) % 3 or not set(map(type, given)) <= {int, float}:
        raise ValueError(f"its keypoints must have three numbers each, got {given!r:.100}")
    points = _make_numbers(given, "keypoints").reshape(-1, 3)
    if category.keypoints and len(points) != len(category.keypoints):
        raise ValueError(f"it must have {len(category.keypoints)} keypoints as its category, got {len(points)}")
    return points


def _parse_segmentation(made: CocoObject, given: object, height: int, width: int) -> None:
    if isinstance(given, Mapping):
        size = given.get("size")
        if size != [height, width]:
            raise ValueError(f"its segmentation must have the size [{height}, {width}] of the image, got {size!r:.100}")
        made.counts = given.get("counts") or ""
    elif isinstance(given, list):
        made.rings = [_parse_ring(ring) for ring in given if ring != []]
    elif given is not None:
        raise ValueError(f"its segmentation must be polygons or run lengths, got {given!r:.100}")


def _parse_ring(given: object) -> Array:
    if not isinstance(given, list) or not set(map(type, given)) <= {int, float}:
        raise ValueError(f"its polygons must be lists of numbers, got {given!r:.100}")
    if len(given) < _MIN_NUMBERS or len(given) % 2:
        raise ValueError(f"its polygons must have x and y of three corners or more, got {len(given)} numbers")
    return _make_numbers(given, "polygons")


def _make_numbers(given: list[Value], what: str) -> Array:
    """Return an array of numbers; its largest is a coordinate that float32 and all arithmetic hold."""
    try:
        made = np.array(given, np.float64)
    except OverflowError:
        made = np.array([np.inf])
    if not np.abs(made).max() <= MAX_COORDINATE:  # or one of them is not a number
        raise ValueError(f"its {what} must have numbers of at most 2**24, got {given!r:.100}")
    return made


def parse_category(given: Mapping[str, Value]) -> CocoCategory:
    """Return a category; ValueError says what is wrong with it."""
    name, points = given.get("name"), given.get("keypoints")
    if not isinstance(name, str) or not name:
        raise ValueError(f"its name must be a text, got {name!r:.100}")
    if points is not None and (not isinstance(points, list) or not all(isinstance(each, str) for each in points)):
        raise ValueError(f"its keypoints must be a list of names, got {points!r:.100}")
    is_thing = given.get("isthing")
    return CocoCategory(name, tuple(points or ()), None if is_thing not in (0, 1) else bool(is_thing))


def parse_skeleton(given: Mapping[str, Value], count: int) -> tuple[tuple[int, int], ...]:
    """The pairs of a category's ``count`` keypoints that a skeleton joins, counted from 0 (COCO counts from 1).

    Raises ValueError if they are none.
    """
    pairs = given.get("skeleton")
    if pairs is None:
        return ()
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"its skeleton must be a list of pairs, got {pairs!r:.100}")
    skeleton = [(parse_int(first, "skeleton") - 1, parse_int(second, "skeleton") - 1) for first, second in pairs]
    if not all(0 <= each < count for pair in skeleton for each in pair):
        raise ValueError(f"its skeleton must have numbers of keypoints from 1 to {count}, got {pairs!r:.100}")
    return tuple(skeleton)
