"""The tracks of "CVAT for video": what stands in each frame, as the elements of images have it.

::

    <track id label> <box frame="0" keyframe="1" outside="0" .../> <box frame="5" outside="1" .../> </track>

    frames that have an element   that element, unless it is outside
    frames between two            a box in between, as CVAT draws it; other shapes are not known there
    frames before and after       nothing: CVAT writes an element for each frame

Which images the frames are: :class:`FramePattern`.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.annotations.numbers import parse_int, parse_number
from penstock.annotations.xml import XmlElement
from penstock.errors import ArgumentError

__all__ = ["FRAME_NAME", "FramePattern", "Track", "read_track"]

FRAME_NAME: Final = "frame_{:06d}"
"""The name of a frame's image as CVAT writes it, without its suffix."""
_MAX_DIGITS: Final = 15
_NUMBER: Final = re.compile(r"[0-9]+")
_CORNERS: Final = ("xtl", "ytl", "xbr", "ybr")
_OF_TRACK: Final = ("label", "group_id")


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
        """The images of frames: of several with one name, the one in ``folder``."""
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
        """Of some frames, in order, those that have an element: it, or a text that says why it is not known."""
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
    """Whether the object is not in the frame. A skeleton without a visible point has none of its own to say so."""
    if element.tag == "skeleton":
        points = list(element.find_all("points"))
        return bool(points) and all(each.attributes.get("outside") == "1" for each in points)
    return element.attributes.get("outside") == "1"


def _interpolate(before: XmlElement, after: XmlElement, share: float) -> XmlElement:
    """A box between two others, as CVAT draws it; ValueError where it cannot be known."""
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
