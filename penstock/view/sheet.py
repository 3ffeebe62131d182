"""A contact sheet: samples of a store side by side, with their labels, as one picture.

Each class shows one picture before any shows a second; which ones is the same every time. Labels and pictures that do
not belong together are seen here at once, which no checksum tells.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from penstock import stores
from penstock.errors import ArgumentError, DecodeError
from penstock.escapes import escape_unprintable
from penstock.plurals import counted
from penstock.sample import Record
from penstock.stores.base import Store

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

__all__ = ["contact_sheet", "pick"]

_FORMATS: Final = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
_GAP: Final = 14
_CAPTION: Final = 38
_HEADER: Final = 56
_PAPER, _FRAME, _INK, _FAINT, _ALARM = (250, 250, 248), (226, 226, 222), (28, 28, 30), (120, 120, 124), (178, 34, 34)


def contact_sheet(
    store: str | os.PathLike[str] | Store,
    path: str | os.PathLike[str],
    *,
    samples: int = 48,
    columns: int = 8,
    tile: int = 160,
) -> list[int]:
    """Draw samples of a store with their labels.

    Parameters
    ----------
    store : str, path or Store
        A path is opened and closed again.
    path : str or path
        Where the sheet goes, in a folder that is there; the ending chooses the format: .png, .jpg, .jpeg or .webp.
    samples : int
        How many pictures at most.
    columns : int
        Pictures in a row.
    tile : int
        Side of the square that a picture is fitted into, in pixels; nothing is cropped.

    Returns
    -------
    list of int
        Indices of the records shown.

    Raises
    ------
    ArgumentError
        If the store has no images, a number is not positive, or the sheet cannot be written there.
    """
    if not isinstance(store, Store):
        with stores.open(store) as opened:
            return contact_sheet(opened, path, samples=samples, columns=columns, tile=tile)
    target = _target(path)
    if min(samples, columns, tile) < 1:
        raise ArgumentError(f"samples={samples}, columns={columns} and tile={tile} must be at least 1")
    image = next((name for name, field in store.schema.fields.items() if field.kind == "image"), None)
    if image is None or not len(store):
        raise ArgumentError(f"{store!r} holds no image to show")
    label = next((name for name, field in store.schema.fields.items() if field.kind == "label"), None)
    shown = pick(store.column(label) if label is not None else np.zeros(len(store), np.int64), samples)
    sheet = _draw(store, shown, image, label, columns, tile)
    try:
        sheet.save(target, _FORMATS[target.suffix.lower()])
    except OSError as error:
        raise ArgumentError(f"the sheet {str(target)!r} cannot be written: {error.strerror or error}") from error
    return shown


def _target(path: str | os.PathLike[str]) -> Path:
    """Where the sheet goes, checked before it is drawn."""
    target = Path(os.fsdecode(path))
    if target.suffix.lower() not in _FORMATS:
        raise ArgumentError(f"a sheet's name must end in {', '.join(_FORMATS)}, got {str(target)!r}")
    if not target.parent.is_dir():
        raise ArgumentError(
            f"the folder {str(target.parent)!r} of the sheet {target.name!r} does not exist; make it first"
        )
    return target


def pick(labels: NDArray[np.int64], samples: int) -> list[int]:
    """Which records to show: rounds over the classes, evenly spaced within each; in order of class, then index."""
    _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(inverse, kind="stable"), np.cumsum(counts)[:-1])
    if len(members) > samples:
        members = [members[at] for at in np.unique(np.linspace(0, len(members) - 1, samples).astype(int))]
    take = [0] * len(members)
    left = min(samples, sum(map(len, members)))
    while left:
        for at, group in enumerate(members):
            if left and take[at] < len(group):
                take[at] += 1
                left -= 1
    return [
        int(group[spot])
        for group, count in zip(members, take, strict=True)
        for spot in (np.arange(count) * len(group) // count)
    ]


def _draw(store: Store, shown: list[int], image: str, label: str | None, columns: int, tile: int) -> Image:
    from PIL import Image, ImageDraw  # the type's name above, the module here

    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    width = max(columns * (tile + _GAP) + _GAP, 480)
    sheet = Image.new("RGB", (width, _HEADER + rows * (tile + _CAPTION + _GAP) + _GAP), _PAPER)
    draw = ImageDraw.Draw(sheet)
    classes = store.schema[label].classes if label is not None else ()
    title, small = _font(20), _font(13)
    name = store.url.rpartition("/")[2]
    draw.text((_GAP, 16), _fit(draw, name, title, width // 2), _INK, title)
    held = f"{len(shown):,} of {counted(len(store), 'record')}" + (
        f", {counted(len(classes), 'class')}" if classes else ""
    )
    draw.text((width - _GAP, 22), held, _FAINT, small, anchor="ra")
    for position, index in enumerate(shown):
        left = _GAP + position % columns * (tile + _GAP)
        top = _HEADER + position // columns * (tile + _CAPTION + _GAP)
        record = store.read([index])[0]
        draw.rectangle((left, top, left + tile - 1, top + tile - 1), _FRAME)
        size = _paste(sheet, draw, record, image, (left, top, tile))
        number = record.fields[label] if label is not None else None
        caption = record.key if number is None else classes[number] if 0 <= number < len(classes) else str(number)
        draw.text((left, top + tile + 5), _fit(draw, caption, small, tile), _INK, small)
        draw.text((left, top + tile + 21), _fit(draw, f"#{index}{size}", small, tile), _FAINT, small)
    return sheet


def _paste(sheet: Image, draw: ImageDraw, record: Record, image: str, place: tuple[int, int, int]) -> str:
    """Fit a picture into its square; gives its size, as text."""
    from PIL import Image  # as above

    from penstock.transforms.decode import decode

    left, top, tile = place
    try:
        picture = Image.fromarray(decode(bytes(record.fields[image])))
    except DecodeError:
        draw.text((left + tile // 2, top + tile // 2), "cannot be decoded", _ALARM, _font(13), anchor="mm")
        return ""
    size = f"   {picture.width} x {picture.height}"
    enlarged = tile // max(picture.size)
    if enlarged > 1:  # thumbnails: whole pixels, so that one sees what the network sees
        picture = picture.resize((picture.width * enlarged, picture.height * enlarged), Image.Resampling.NEAREST)
    picture.thumbnail((tile, tile), Image.Resampling.LANCZOS)
    sheet.paste(picture, (left + (tile - picture.width) // 2, top + (tile - picture.height) // 2))
    return size


def _font(size: int) -> FreeTypeFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)  # type: ignore[return-value]  # without FreeType a bitmap font, which draws too


def _fit(draw: ImageDraw, text: str, font: FreeTypeFont, width: int) -> str:
    """The text, fit to be drawn in one line and shortened at its end to fit."""
    text = escape_unprintable(text)
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(text + "…", font) > width:
        text = text[:-1]
    return text + "…"
