"""CVAT: the XML files of "CVAT for images 1.1" and "CVAT for video 1.1".

::

    annotations.xml     <annotations> <meta> labels; <image name width height> box, polygon, mask, skeleton, tag, ...
                        of a video: <track id label> the same shapes, each with its frame
    images/1.jpg        where the images were exported with it, or where ``images=`` says; of a video frame_000000.png

Every shape becomes an object whose box bounds it. A track has one in some of its frames::

    <track id label> <box frame="0" keyframe="1" outside="0" .../> <box frame="5" outside="1" .../> </track>

    frames that have an element   that element, unless it is outside
    frames between two            a box in between, as CVAT draws it; other shapes are not known there
    frames before and after       nothing: CVAT writes an element for each frame

Which images the frames are: :class:`FramePattern`.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from penstock.annotations.base import AnnotationFormat, refuse_unknown_split
from penstock.annotations.numbers import parse_int, parse_number
from penstock.annotations.records import ImageObjects, RecordBuilder
from penstock.annotations.shapes import bound_ellipse, bound_points, encode_crop, rotate_box
from penstock.annotations.source import AnnotationSource
from penstock.annotations.xml import XmlElement, parse_xml
from penstock.errors import AnnotationError, ArgumentError
from penstock.orientation import MIRRORED, get_upright_size, orient_points
from penstock.sample import Array, Value

__all__ = ["CvatFormat"]

_HEAD_NBYTES: Final = 4096
_ROOT: Final = re.compile(b"<annotations")
_VISIBLE: Final = 2.0
_OCCLUDED: Final = 1.0
"""Flags of points, as COCO has them; 0 stands for a point outside the image."""
_PLACES: Final = ("task", "project", "job")
_CORNERS: Final = ("xtl", "ytl", "xbr", "ybr")
_CUBOID: Final = tuple((f"x{corner}{side}", f"y{corner}{side}") for corner in ("tl", "bl", "tr", "br") for side in "12")
FRAME_NAME: Final = "frame_{:06d}"
"""The name of a frame's image as CVAT writes it, without its suffix."""
_MAX_DIGITS: Final = 15
_NUMBER: Final = re.compile(r"[0-9]+")
_MAX_TRACKED: Final = 2_000_000
_OF_TRACK: Final = ("label", "group_id")


class CvatFormat(AnnotationFormat):
    """Reads "CVAT for images 1.1" and "CVAT for video 1.1".

    Parameters
    ----------
    frames : str
        The name of the image of a video's frame, without suffix: with a place for its number, as :meth:`str.format`
        has it.
    first_frame : int
        The number in the name of the image of frame 0.
    """

    name = "cvat"

    def __init__(self, *, frames: str = FRAME_NAME, first_frame: int = 0) -> None:
        self._frames = FramePattern(frames, first_frame)

    @classmethod
    def recognises(cls, source: AnnotationSource) -> bool:
        """XML files whose root is ``<annotations>``."""
        return source.begins(".xml", _HEAD_NBYTES, _ROOT)

    def read(self, source: AnnotationSource, builder: RecordBuilder, split: str | None) -> None:
        """Add all images; see :meth:`AnnotationFormat.read`."""
        documents = list(_read_documents(source, builder))
        names = list(dict.fromkeys(name for _, root in documents for name in _list_labels(root)))
        if source.classes is not None:
            names = list(dict.fromkeys(line for _, line in source.read_lines(source.classes)))
        if names:
            builder.set_classes(names)
        skeletons = {name: points for _, root in documents for name, points in _list_skeletons(root).items()}
        if skeletons:
            builder.details["keypoint_names"] = skeletons
        splits = {each.attributes["subset"] for _, root in documents for each in root.find_all("image") if _split(each)}
        refuse_unknown_split(split, sorted(splits))
        for path, root in documents:
            has_tags = any(each.find("tag") is not None for each in root.find_all("image"))
            for element in root.find_all("image"):
                if split is None or _split(element) == split:
                    _read_image(source, builder, path, element, skeletons, has_tags=has_tags)
            if root.find("track") is not None:
                _read_video(source, builder, path, root, skeletons, self._frames)


def _split(element: XmlElement) -> str | None:
    return element.attributes.get("subset") or None


def _read_documents(source: AnnotationSource, builder: RecordBuilder) -> Iterator[tuple[Path, XmlElement]]:
    for path in source.list_given(".xml"):
        shown = source.relative(path)
        try:
            root = parse_xml(source.read_bytes(path))
        except ValueError as error:
            if isinstance(error, AnnotationError):
                raise
            raise AnnotationError(f"{shown}: {error}", source=str(source.root)) from error
        if root.tag != "annotations":
            builder.note(
                path, f"its root must be <annotations>, got <{root.tag:.100}>", root.line, effect="file left out"
            )
            continue
        yield path, root


def _label_elements(root: XmlElement) -> Iterator[XmlElement]:
    for place in _PLACES:
        if (found := root.find(f"meta/{place}/labels")) is not None:
            yield from found.find_all("label")


def _list_labels(root: XmlElement) -> list[str]:
    """The labels of a task in its order, without the points of skeletons."""
    names = (each.find_text("name") for each in _label_elements(root) if each.find_text("parent") is None)
    return [name for name in names if name is not None]


def _list_skeletons(root: XmlElement) -> dict[str, list[str]]:
    """The names of the points of each skeleton."""
    found: dict[str, list[str]] = {}
    for each in _label_elements(root):
        parent, name = each.find_text("parent"), each.find_text("name")
        if parent is not None and name is not None:
            found.setdefault(parent, []).append(name)
    return found


def _read_image(
    source: AnnotationSource,
    builder: RecordBuilder,
    path: Path,
    element: XmlElement,
    skeletons: Mapping[str, Sequence[str]],
    *,
    has_tags: bool,
) -> None:
    name = element.attributes.get("name", "")
    split = _split(element)
    try:
        width, height = (parse_int(element.attributes.get(side, 0), side) for side in ("width", "height"))
        number = parse_int(element.attributes["id"], "id") if "id" in element.attributes else None
    except ValueError as error:
        builder.note(path, str(error), element.line, image=name)
        return
    tags = [each.attributes.get("label", "") for each in element.find_all("tag")] if has_tags else None
    folder = path.parent
    folders = [folder / "images" / split] if split and split not in {".", ".."} and "/" not in split else []
    found = source.find_image(name, *folders, folder / "images", split=split)
    size = width, height
    image = builder.image(name, found, file=path, line=element.line, size=size, id=number, split=split, tags=tags)
    if image is not None:
        for each in element.children:
            if each.tag != "tag":
                _read_shape(image, each, skeletons)


def _read_video(
    source: AnnotationSource,
    builder: RecordBuilder,
    path: Path,
    root: XmlElement,
    skeletons: Mapping[str, Sequence[str]],
    pattern: FramePattern,
) -> None:
    """Add the frames of a video: those that have an image, with what the tracks have in them."""
    shown = source.relative(path)
    tracks = [read_track(each, number) for number, each in enumerate(root.find_all("track"))]
    named = {frame for track in tracks for frame in track.frames}
    if sum(1 for each in _find_tasks(root)) > 1:
        raise AnnotationError(
            f"{shown}: it has {len(tracks)} tracks of several tasks, whose frames have the same numbers; export each "
            "task by itself",
            source=str(source.root),
        )
    images = pattern.find_frames(source.image_files, path.parent)
    if named and named.isdisjoint(images):
        raise AnnotationError(
            f"{shown}: it has {len(tracks)} tracks in {len(named)} frames, and there is no image "
            f"{pattern.format(min(named))!r:.200}; give frames=, the name of a frame's image such as {FRAME_NAME!r}, "
            "first_frame=, the number of the first one, and images=, their folder",
            source=str(source.root),
        )
    for frame in sorted(named.difference(images)):
        builder.note(path, f"there is no image of frame {frame}", image=pattern.format(frame))
    size = _read_video_size(root)
    begun = {
        frame: builder.image(found.name, found, file=path, size=size, frame=frame) for frame, found in images.items()
    }
    for track in tracks:
        for line, reason in track.wrong:
            builder.note(path, reason, line, effect="object left out")
    held = {frame: image for frame, image in begun.items() if image is not None}
    frames = list(held)
    for count, (frame, found) in enumerate(each for track in tracks for each in track.visit(frames)):
        if count >= _MAX_TRACKED:
            raise AnnotationError(
                f"{shown}: its tracks must have at most {_MAX_TRACKED:,} shapes in all frames together, also of frames "
                "between two others; export the video in parts",
                source=str(source.root),
            )
        if isinstance(found, str):
            held[frame].note(found)
        else:
            _read_shape(held[frame], found, skeletons)


def _find_tasks(root: XmlElement) -> Iterator[XmlElement]:
    """Return the tasks of a project."""
    tasks = root.find("meta/project/tasks")
    return iter(()) if tasks is None else tasks.find_all("task")


def _read_video_size(root: XmlElement) -> tuple[int, int] | None:
    """Return the width and height of the video; None where the file does not say it."""
    for place in (*(f"meta/{each}" for each in _PLACES), "meta", "meta/project/tasks/task"):
        if (found := root.find(f"{place}/original_size")) is not None:
            try:
                return parse_int(found.find_text("width"), "width"), parse_int(found.find_text("height"), "height")
            except ValueError:
                return None
    return None


def _read_shape(image: ImageObjects, element: XmlElement, skeletons: Mapping[str, Sequence[str]]) -> None:
    read = _READERS.get(element.tag)
    try:
        if read is None:
            raise ValueError(f"its shape must be one of {', '.join(_READERS)}, got <{element.tag:.100}>")  # noqa: TRY301
        label = element.attributes.get("label")
        if not label:
            raise ValueError("it has no label")  # noqa: TRY301
        box, fields = read(image, element, skeletons.get(label, ()))
        attributes = _read_attributes(element)
        drawn = {name: fields.pop(name, None) for name in ("keypoints", "instance", "polygon")}
    except ValueError as error:
        image.note(str(error), element.line)
        return
    shown = {**attributes, **fields, "shape_type": element.tag}
    image.add(label, box, line=element.line, attributes=shown, **drawn)


def _read_attributes(element: XmlElement) -> dict[str, Value]:
    """Return attributes that people gave, as numbers or texts, and CVAT's own: occluded, z_order, group_id."""
    found: dict[str, Value] = {
        each.attributes.get("name") or "attribute": _read_value(each.text.strip())
        for each in element.find_all("attribute")
    }
    for name in ("occluded", "z_order", "group_id", "track_id"):
        if name in element.attributes:
            found[name] = parse_int(element.attributes[name], name)
    return found


def _read_value(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else text


_Shape = tuple[Sequence[float], dict[str, Value]]


def _read_number(element: XmlElement, name: str) -> float:
    if name not in element.attributes:
        raise ValueError(f"it has no {name}")
    return _read_finite(element.attributes[name], name)


def _read_finite(text: str, what: str) -> float:
    number = parse_number(text, what)
    if not math.isfinite(number):
        raise ValueError(f"its {what} must be a finite number, got {text!r:.100}")
    return number


def _read_points(element: XmlElement) -> list[tuple[float, float]]:
    """Read the pairs of "x,y;x,y"."""
    points = []
    for text in element.attributes.get("points", "").split(";"):
        if text.strip():
            x, comma, y = text.partition(",")
            if not comma:
                raise ValueError(f"its points must be pairs of x and y, got {text!r:.100}")
            points.append((_read_finite(x, "x"), _read_finite(y, "y")))
    if not points:
        raise ValueError("it has no points")
    return points


def _flatten(points: Sequence[tuple[float, float]]) -> list[float]:
    return [number for point in points for number in point]


def _read_rotation(element: XmlElement) -> float:
    rotation = _read_finite(element.attributes.get("rotation", "0"), "rotation")
    if abs(rotation) > 3600:  # ten turns; CVAT writes at most one
        raise ValueError(f"its rotation must be in [-3600, 3600] degrees, got {rotation}")
    return rotation


def _turn_rotation(rotation: float, image: ImageObjects) -> float:
    """Return the rotation of a shape in the upright picture, degrees.

    Its sides or radii change places where axes do.
    """
    return -rotation % 360 if image.orientation in MIRRORED else rotation


def _read_box(image: ImageObjects, element: XmlElement, _names: Sequence[str]) -> _Shape:
    box = [_read_number(element, name) for name in _CORNERS]
    if not (rotation := _read_rotation(element)):
        return box, {}
    corners = rotate_box(box, rotation)
    return bound_points(corners), {"rotation": _turn_rotation(rotation, image), "polygon": _flatten(corners)}


def _read_polygon(_image: ImageObjects, element: XmlElement, _names: Sequence[str]) -> _Shape:
    points = _read_points(element)
    return bound_points(points), {"polygon": _flatten(points)}


def _read_polyline(_image: ImageObjects, element: XmlElement, _names: Sequence[str]) -> _Shape:
    points = _read_points(element)
    return bound_points(points), {"line_points": _flatten(points)}


def _read_landmarks(_image: ImageObjects, element: XmlElement, _names: Sequence[str]) -> _Shape:
    points = _read_points(element)
    return bound_points(points), {"keypoints": _make_keypoints([(*point, _VISIBLE) for point in points])}


def _read_ellipse(image: ImageObjects, element: XmlElement, _names: Sequence[str]) -> _Shape:
    x, y, radius_x, radius_y = (_read_number(element, name) for name in ("cx", "cy", "rx", "ry"))
    if not (radius_x > 0 and radius_y > 0):
        raise ValueError(f"its radii must be positive, got {radius_x} and {radius_y}")
    rotation = _read_rotation(element)
    box = bound_ellipse(x, y, radius_x, radius_y, rotation)
    x, y = orient_points(np.array([[x, y]]), image.orientation, (image.width, image.height))[0].tolist()
    radius_x, radius_y = get_upright_size((radius_x, radius_y), image.orientation)
    return box, {"cx": x, "cy": y, "rx": radius_x, "ry": radius_y, "rotation": _turn_rotation(rotation, image)}


def _read_cuboid(_image: ImageObjects, element: XmlElement, _names: Sequence[str]) -> _Shape:
    points = [(_read_number(element, x), _read_number(element, y)) for x, y in _CUBOID]
    return bound_points(points), {"cuboid": _flatten(points)}


def _read_mask(image: ImageObjects, element: XmlElement, _names: Sequence[str]) -> _Shape:
    """Return a mask of a part of the image: numbers of pixels outside and inside by turns, row by row."""
    names = ("left", "top", "width", "height")
    left, top, width, height = (parse_int(element.attributes.get(name), name) for name in names)
    if min(left, top) < 0 or min(width, height) < 1 or left + width > image.width or top + height > image.height:
        raise ValueError(
            f"its mask must lie in the image of {image.width} x {image.height}, got {width} x {height} pixels at "
            f"({left}, {top})"
        )
    counts = [parse_int(text, "rle") for text in element.attributes.get("rle", "").split(",")]
    if min(counts) < 0 or sum(counts) != width * height:  # before as many pixels are made
        raise ValueError(f"the counts of its rle must be positive and sum to {width * height}, got {sum(counts)}")
    inside = np.arange(len(counts)) % 2 == 1
    crop = np.repeat(inside, counts).reshape(height, width)
    box = (float(left), float(top), float(left + width), float(top + height))
    return box, {"instance": encode_crop(crop, left, top, image.width, image.height)}


def _read_skeleton(_image: ImageObjects, element: XmlElement, names: Sequence[str]) -> _Shape:
    """Points by the names that the task lists for the skeleton; those outside the image have zeros."""
    order = list(names) or [each.attributes.get("label", "") for each in element.find_all("points")]
    rows = [(0.0, 0.0, 0.0)] * len(order)
    places = {label: place for place, label in reversed(list(enumerate(order)))}
    for each in element.find_all("points"):
        label = each.attributes.get("label", "")
        if label not in places:
            raise ValueError(f"its point {label!r:.100} is not one of the skeleton's")
        if each.attributes.get("outside") != "1":
            x, y = _read_points(each)[0]
            rows[places[label]] = (x, y, _OCCLUDED if each.attributes.get("occluded") == "1" else _VISIBLE)
    visible = [(x, y) for x, y, flag in rows if flag]
    if not visible:
        raise ValueError("none of its points lies in the image")
    return bound_points(visible), {"keypoints": _make_keypoints(rows)}


def _make_keypoints(rows: Sequence[tuple[float, float, float]]) -> Array:
    with np.errstate(over="ignore"):
        return np.array(rows, np.float64).astype(np.float32)


_READERS: Final[dict[str, Callable[[ImageObjects, XmlElement, Sequence[str]], _Shape]]] = {
    "box": _read_box,
    "polygon": _read_polygon,
    "polyline": _read_polyline,
    "points": _read_landmarks,
    "ellipse": _read_ellipse,
    "cuboid": _read_cuboid,
    "mask": _read_mask,
    "skeleton": _read_skeleton,
}


@dataclass(frozen=True, slots=True)
class FramePattern:
    """Which images are the frames of a video.

    Raises
    ------
    ArgumentError
        If ``name`` has no place for the number, or ``first`` is no int of at least 0.
    """

    name: str = FRAME_NAME  # of the image of a frame, without suffix, as for :meth:`str.format`: ``"frame_{:06d}"``
    first: int = 0  # the number in the name of frame 0: 1 for images that ffmpeg wrote

    def __post_init__(self) -> None:
        try:
            is_pattern = self.format(1) != self.format(2)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            is_pattern = False
        if not is_pattern:
            raise ArgumentError(
                f"frames must be a name with a place for a number, as {FRAME_NAME!r}, got {self.name!r:.200}"
            )
        if type(self.first) is not int or self.first < 0:
            raise ArgumentError(f"first_frame must be an int of at least 0, got {self.first!r:.80}")

    def format(self, frame: int) -> str:
        """The name of a frame's image, without suffix."""
        return self.name.format(frame + self.first)

    def find_frames(self, image_files: Mapping[str, list[Path]], folder: Path) -> dict[int, Path]:
        """Return the images of frames: of several with one name, the one in ``folder``."""
        found: dict[int, Path] = {}
        for stem, paths in image_files.items():
            numbers = [int(digits) for digits in _NUMBER.findall(stem) if len(digits) <= _MAX_DIGITS]
            frames = [number - self.first for number in numbers if number >= self.first]
            frame = next((each for each in frames if self.format(each) == stem), None)
            near = [path for path in paths if path.is_relative_to(folder)] if len(paths) > 1 else paths
            if frame is not None and len(near) == 1:
                found[frame] = near[0]
        return dict(sorted(found.items()))


@dataclass(slots=True)
class Track:
    """The elements of a track by frame, in order; what is wrong with others: line and reason."""

    frames: list[int] = field(default_factory=list)
    elements: list[XmlElement] = field(default_factory=list)
    wrong: list[tuple[int, str]] = field(default_factory=list)

    def visit(self, frames: Sequence[int]) -> Iterator[tuple[int, XmlElement | str]]:
        """Yield the frames that have an element, in order, with it or a text that says why it is not known."""
        if not self.frames:
            return
        begin, stop = bisect.bisect_left(frames, self.frames[0]), bisect.bisect_right(frames, self.frames[-1])
        for frame in frames[begin:stop]:
            after = bisect.bisect_left(self.frames, frame)
            if after < len(self.frames) and self.frames[after] == frame:
                if not _is_outside(self.elements[after]):
                    yield frame, self.elements[after]
            elif 0 < after < len(self.frames) and not _is_outside(self.elements[after - 1]):
                before, here = self.frames[after - 1], self.frames[after]
                share = (frame - before) / (here - before)
                try:
                    yield frame, _interpolate(self.elements[after - 1], self.elements[after], share)
                except ValueError as error:
                    yield frame, f"line {self.elements[after - 1].line}: frames {before} to {here}: {error}"


def read_track(element: XmlElement, number: int) -> Track:
    """A track; ``number``: its place in the file, which is its id where it has none."""
    track = Track()
    held: dict[int, XmlElement] = {}
    shared = {name: element.attributes[name] for name in _OF_TRACK if name in element.attributes}
    for each in element.children:
        try:
            frame = parse_int(each.attributes.get("frame"), "frame")
            if not 0 <= frame < 10**_MAX_DIGITS:
                raise ValueError(f"its frame must be a number of at least 0, got {frame}")  # noqa: TRY301
            if frame in held:
                raise ValueError(f"its track has the frame {frame} twice")  # noqa: TRY301
        except ValueError as error:
            track.wrong.append((each.line, str(error)))
            continue
        attributes: dict[str, str] = shared | each.attributes
        attributes["track_id"] = element.attributes.get("id", str(number))
        held[frame] = XmlElement(each.tag, each.line, attributes, each.children, each.text)
    track.frames = sorted(held)
    track.elements = [held[frame] for frame in track.frames]
    return track


def _is_outside(element: XmlElement) -> bool:
    """Return whether the object is not in the frame.

    A skeleton without a visible point has none of its own to say so.
    """
    if element.tag == "skeleton":
        points = list(element.find_all("points"))
        return bool(points) and all(each.attributes.get("outside") == "1" for each in points)
    return element.attributes.get("outside") == "1"


def _interpolate(before: XmlElement, after: XmlElement, share: float) -> XmlElement:
    """Return a box between two others, as CVAT draws it; ValueError where it cannot be known."""
    if before.tag != "box" or after.tag != "box":
        raise ValueError(f"only boxes are interpolated, got <{before.tag:.100}> and <{after.tag:.100}>")
    attributes: dict[str, str] = dict(before.attributes)
    for name in _CORNERS:
        first, second = (parse_number(each.attributes.get(name), name) for each in (before, after))
        attributes[name] = repr(first + (second - first) * share)
    turns = [parse_number(each.attributes.get("rotation", "0"), "rotation") for each in (before, after)]
    if any(turns):
        way = (turns[1] - turns[0] + 180) % 360 - 180  # the shorter way round
        attributes["rotation"] = repr((turns[0] + way * share) % 360)
    return XmlElement("box", before.line, attributes, before.children, before.text)
