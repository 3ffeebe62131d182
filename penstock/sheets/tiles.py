"""Draws one sample as a square tile: its image, letterboxed, with masks, boxes, class names and keypoints on it.

::

    Annotated ──to_rgb──> pixels ──fit──> Tile ──masks, instances──> tinted pixels
                                           └──boxes, names, keypoints──> lines on the tile

Called by :mod:`.showing`. Lines are drawn after the image is scaled, so that they are as wide in every tile. What
cannot be drawn is said under the tile, in red.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from penstock.annotations import rle
from penstock.errors import AnnotationError, ArgumentError, DecodeError
from penstock.sample import Array
from penstock.sheets.annotated import Annotated
from penstock.sheets.canvas import ALARM, FRAME, Color, color_of, load_font, shorten
from penstock.sheets.shown_pixels import PixelForm, as_array, to_mask, to_rgb
from penstock.transforms.targets.target_forms import as_boxes
from penstock.wording import counted, escape_unprintable

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

__all__ = ["Tile", "decode_instance", "draw_tile"]

_OPACITY: Final = 0.5
_MAX_OBJECTS: Final = 500
_MAX_NAMED: Final = 40
"""Above this number of boxes, names would hide the image; colours and the legend remain."""
_DARK: Final[Color] = (0, 0, 0)
_WHITE: Final[Color] = (255, 255, 255)


@dataclass(slots=True)
class Tile:
    """A sample as it is drawn."""

    picture: Image  # the square
    ratios: tuple[float, float] = (1.0, 1.0)  # pixels of the tile per pixel of the image, across and down
    left: int = 0
    top: int = 0
    """``left`` and ``top``: where the image begins in the tile."""
    size: tuple[int, int] = (0, 0)
    """Width and height of the image as the sample has it; (0, 0) if it could not be decoded."""
    facts: list[str] = field(default_factory=list)  # what the tile has: size, number of boxes
    problems: list[str] = field(default_factory=list)  # what could not be drawn
    classes: dict[tuple[int, str], None] = field(default_factory=dict)
    """Numbers and names of the classes that are drawn, for the legend."""

    @property
    def side(self) -> int:
        """The side of the square, in pixels."""
        return self.picture.width

    def name_class(self, number: int, classes: Mapping[int, str]) -> str:
        """The name of a class, which the legend then has."""
        name = classes.get(number, str(number))
        self.classes[number, name] = None
        return name

    def place(self, points: Array) -> NDArray[np.float64]:
        """Coordinates of an image, (n, 2), as coordinates of the tile; far outside, they are clipped."""
        moved = np.clip(points.astype(np.float64), -1e9, 1e9) * self.ratios + (self.left, self.top)
        return np.clip(moved, -self.side, 2 * self.side)


def draw_tile(sample: Annotated, side: int, form: PixelForm, *, hides_zero: bool = False) -> Tile:
    """Draw a sample.

    Parameters
    ----------
    sample : Annotated
        What to draw.
    side : int
        Of the square, in pixels.
    form : PixelForm
        Of its image.
    hides_zero : bool
        Whether keypoints with visibility 0 are not annotated, as in COCO, and are left out.
    """
    from PIL import Image, ImageDraw  # the name above is the type, this one is the module

    tile = Tile(Image.new("RGB", (side, side), FRAME))
    draw = ImageDraw.Draw(tile.picture)
    try:
        if sample.image is None:
            raise DecodeError("there is no image")  # noqa: TRY301  # one handler
        pixels, note = to_rgb(sample.image, form)
    except DecodeError:
        text = "no image" if sample.image is None else "cannot be decoded"
        draw.text((side // 2, side // 2), text, ALARM, load_font(13), anchor="mm")
        tile.problems.append("the record has no image" if sample.image is None else "the image cannot be decoded")
        return tile
    tile.facts.append(f"{pixels.shape[1]} x {pixels.shape[0]}{f' {note}' if note else ''}")
    shown = _fit(tile, pixels)
    for mask in sample.masks:
        _tint_by_mask(tile, shown, sample, mask)
    _tint_by_instances(tile, shown, sample)
    tile.picture.paste(Image.fromarray(shown), (tile.left, tile.top))
    _draw_boxes(tile, draw, sample)
    _draw_keypoints(tile, draw, sample, hides_zero=hides_zero)
    return tile


def _fit(tile: Tile, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the image, scaled to fit; small ones are enlarged by a whole factor, so that their pixels are visible."""
    from PIL import Image  # as above

    picture = Image.fromarray(pixels)
    tile.size = picture.size
    ratio = tile.side / max(picture.size)
    ratio = int(ratio) if ratio >= 1 else ratio
    width, height = (max(1, round(length * ratio)) for length in picture.size)
    tile.left, tile.top = (tile.side - width) // 2, (tile.side - height) // 2
    tile.ratios = width / picture.width, height / picture.height
    scaling = Image.Resampling.NEAREST if ratio >= 1 else Image.Resampling.LANCZOS
    return np.array(picture.resize((width, height), scaling, reducing_gap=3.0 if ratio < 1 else None))


def _tint_by_mask(tile: Tile, shown: NDArray[np.uint8], sample: Annotated, given: object) -> None:
    try:
        mask = to_mask(given)
    except (ArgumentError, DecodeError) as error:
        tile.problems.append(f"a mask cannot be drawn: {error}")
        return
    if mask.shape[-2:] != tile.size[::-1]:
        tile.problems.append(f"a mask of {mask.shape[-1]} x {mask.shape[-2]} is not drawn")
        return
    if mask.ndim == 3:  # a mask for each object, as torchvision's models take them
        tile.facts.append(counted(len(mask), "mask"))
        for row, own in enumerate(mask[:_MAX_OBJECTS]):
            _tint(shown, _shrink(own != 0, shown), color_of(_number(sample, row)))
        return
    values = np.unique(mask)
    values = values[values != 0]
    tile.facts.append(f"mask of {counted(len(values), 'value')}")
    small, names = _shrink(mask, shown), dict(enumerate(sample.mask_classes))
    for value in values[:_MAX_OBJECTS].tolist():
        tile.name_class(value, names)
        _tint(shown, small == value, color_of(value))


def _tint_by_instances(tile: Tile, shown: NDArray[np.uint8], sample: Annotated) -> None:
    if sample.instances is None:
        return
    missing = 0
    for row, instance in enumerate(sample.instances[:_MAX_OBJECTS]):
        own = decode_instance(instance, *tile.size)
        if own is None:
            missing += instance is not None
        else:
            _tint(shown, _shrink(own, shown), color_of(_number(sample, row)))
    if missing:
        tile.problems.append(f"{counted(missing, 'instance')} of another size not drawn")


def _number(sample: Annotated, row: int) -> int:
    """Return the class of an object, or its position where there is none."""
    return int(sample.numbers[row]) if sample.numbers is not None and row < len(sample.numbers) else row


def _shrink(mask: Array, shown: NDArray[np.uint8]) -> Array:
    """Return a mask in the size of the image as it is drawn: the nearest pixels."""
    rows, columns = (
        ((np.arange(length) + 0.5) * full / length).astype(np.int64)
        for length, full in zip(shown.shape[:2], mask.shape, strict=True)
    )
    small: Array = mask[rows[:, None], columns]
    return small


def _tint(shown: NDArray[np.uint8], inside: Array, color: Color) -> None:
    """Mix a colour into the pixels of an object, and draw its edge in the colour itself."""
    shown[inside] = (shown[inside] * (1 - _OPACITY) + np.array(color) * _OPACITY + 0.5).astype(np.uint8)
    padded = np.pad(inside, 1, mode="edge")
    core = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    shown[inside & ~core] = color


def _draw_boxes(tile: Tile, draw: ImageDraw, sample: Annotated) -> None:
    if sample.boxes is None:
        return
    try:
        boxes = as_boxes(as_array(sample.boxes)).reshape(-1, 4)
    except ArgumentError as error:
        tile.problems.append(f"the boxes cannot be drawn: {error}")
        return
    tile.facts.append(counted(len(boxes), "box"))
    if sample.numbers is not None and len(sample.numbers) != len(boxes):
        tile.problems.append(f"{counted(len(sample.numbers), 'class')} for {counted(len(boxes), 'box')}")
    with np.errstate(invalid="ignore"):
        is_area = np.isfinite(boxes).all(axis=1) & (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    if not is_area.all():
        tile.problems.append(f"{counted(int((~is_area).sum()), 'box')} without area")
    rows = np.flatnonzero(is_area)
    if len(rows) > _MAX_OBJECTS:
        tile.problems.append(f"the first {_MAX_OBJECTS} boxes are drawn")
    rows = rows[:_MAX_OBJECTS]
    corners = tile.place(boxes[rows].reshape(-1, 2)).reshape(-1, 4)
    names = dict(enumerate(sample.object_classes))
    has_names = not sample.object_classes and len(sample.object_names) == len(boxes)
    named: list[tuple[tuple[int, int, int, int], str, Color]] = []
    for row, (x0, y0, x1, y1) in zip(rows.tolist(), corners.tolist(), strict=True):
        number = _number(sample, row) if sample.numbers is not None else 0
        left, top = round(x0), round(y0)
        edges = left, top, max(left, round(x1) - 1), max(top, round(y1) - 1)
        _draw_box(draw, edges, color_of(number), _line_width(tile.side))
        if sample.numbers is not None and row < len(sample.numbers):
            classes = {number: sample.object_names[row]} if has_names else names
            named.append((edges, tile.name_class(number, classes), color_of(number)))
    if len(named) <= _MAX_NAMED:
        font = load_font(max(10, tile.side // 26))
        for edges, name, color in named:
            _draw_name(tile, draw, edges, name, color, font)


def _line_width(side: int) -> int:
    return max(2, side // 120)


def _draw_box(draw: ImageDraw, edges: tuple[int, int, int, int], color: Color, width: int) -> None:
    """A frame whose outer edge is that of the box, with a dark line around it, for images of the same colour."""
    left, top, right, bottom = edges
    draw.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline=_DARK)
    draw.rectangle(edges, outline=color, width=width)


def _draw_name(
    tile: Tile, draw: ImageDraw, edges: tuple[int, int, int, int], name: str, color: Color, font: FreeTypeFont
) -> None:
    """The name of a class, above its box, or in it where there is no room."""
    text = shorten(draw, name, font, tile.side // 2)
    left, _, right, bottom = draw.textbbox((0, 0), text, font)
    width, height = int(right - left) + 6, int(bottom) + 4
    x = min(max(edges[0], 0), tile.side - width)
    y = edges[1] - height if edges[1] - height >= 0 else max(0, edges[1])
    draw.rectangle((x, y, x + width - 1, y + height - 1), color)
    draw.text((x + 3, y + 1), text, _ink_on(color), font)


def _ink_on(color: Color) -> Color:
    red, green, blue = color
    return _DARK if 0.299 * red + 0.587 * green + 0.114 * blue > 110 else _WHITE


def _draw_keypoints(tile: Tile, draw: ImageDraw, sample: Annotated, *, hides_zero: bool) -> None:
    """A dot for each point, in the colour of its position: a pair that is swapped shows. Hollow: visibility 0."""
    if sample.keypoints is None:
        return
    try:
        points = as_array(sample.keypoints)
    except ArgumentError as error:
        tile.problems.append(f"the keypoints cannot be drawn: {error}")
        return
    points = points[None] if points.ndim == 1 and points.size else points
    if points.size == 0:
        return
    if points.ndim not in {2, 3} or points.shape[-1] not in {2, 3} or points.dtype.kind not in "iuf":
        tile.problems.append(f"keypoints of shape {points.shape} are not drawn")
        return
    objects = points if points.ndim == 3 else points[None]
    radius, count = max(2, tile.side // 90), 0
    for rows in objects[:_MAX_OBJECTS]:
        places = tile.place(np.nan_to_num(rows[:, :2]))
        for number, (row, (x, y)) in enumerate(zip(rows.tolist(), places.tolist(), strict=True)):
            visible = row[2] if len(row) == 3 else 1
            if not np.isfinite(row).all() or visible < 0 or (visible == 0 and (hides_zero or not any(row))):
                continue
            count += 1
            around = x - radius, y - radius, x + radius, y + radius
            color = color_of(number)
            draw.ellipse((around[0] - 1, around[1] - 1, around[2] + 1, around[3] + 1), outline=_DARK)
            draw.ellipse(around, fill=color if visible else None, outline=color, width=2)
    tile.facts.append(escape_unprintable(counted(count, "point")))


def decode_instance(instance: object, width: int, height: int) -> NDArray[np.bool_] | None:
    """Return a mask, or COCO's run lengths, as (height, width); None if it is neither, or has another size."""
    if isinstance(instance, np.ndarray):
        return instance != 0 if instance.shape == (height, width) else None
    if not isinstance(instance, Mapping) or instance.get("size") not in ([height, width], (height, width)):
        return None
    try:
        return rle.decode(instance).view(np.bool_)
    except AnnotationError:
        return None
