"""A contact sheet: samples of a store with their labels, in one picture.

Every class is shown once before any class is shown twice. The same store gives the same sheet. It lets a person see
wrong labels, which no checksum detects.
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
        A path is opened, and closed afterwards.
    path : str or path
        The file to write, in an existing folder. Its extension is .png, .jpg, .jpeg or .webp.
    samples : int
        The largest number of samples.
    columns : int
        Samples per row.
    tile : int
        Side of the square for each sample, in pixels. Images are scaled to fit, not cropped.

    Returns
    -------
    list of int
        Indices of the drawn records.

    Raises
    ------
    ArgumentError
        If the store has no images, a number is not positive, or the file cannot be written.
    StoreError
        If the store cannot be opened or read.
    """
    if not isinstance(store, Store):
        with stores.open(store) as opened:
            return contact_sheet(opened, path, samples=samples, columns=columns, tile=tile)
    target = _check_path(path)
    if min(samples, columns, tile) < 1:
        raise ArgumentError(f"samples, columns and tile must be at least 1, got {samples}, {columns} and {tile}")
    image = next((name for name, field in store.schema.fields.items() if field.kind == "image"), None)
    if image is None or not len(store):
        raise ArgumentError(f"the store must have at least one image, but {store!r} has none")
    label = next((name for name, field in store.schema.fields.items() if field.kind == "label"), None)
    shown = pick(store.column(label) if label is not None else np.zeros(len(store), np.int64), samples)
    sheet = _draw(store, shown, image, label, columns, tile)
    try:
        sheet.save(target, _FORMATS[target.suffix.lower()])
    except OSError as error:
        raise ArgumentError(f"the sheet {str(target)!r} cannot be written: {error.strerror or error}") from error
    return shown


def _check_path(path: str | os.PathLike[str]) -> Path:
    """Check the path before the sheet is drawn."""
    target = Path(os.fsdecode(path))
    if target.suffix.lower() not in _FORMATS:
        raise ArgumentError(f"the name of a sheet must end in {', '.join(_FORMATS)}, got {str(target)!r}")
    if not target.parent.is_dir():
        raise ArgumentError(
            f"the folder {str(target.parent)!r} of the sheet {target.name!r} does not exist; make it first"
        )
    return target


def pick(labels: NDArray[np.int64], samples: int) -> list[int]:
    """Choose the records: in turn from each class, evenly spaced in the class; ordered by class, then index."""
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
        int(group[position])
        for group, count in zip(members, take, strict=True)
        for position in (np.arange(count) * len(group) // count)
    ]


def _draw(store: Store, shown: list[int], image: str, label: str | None, columns: int, tile: int) -> Image:
    from PIL import Image, ImageDraw  # the name above is the type, this one is the module

    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    width = max(columns * (tile + _GAP) + _GAP, 480)
    sheet = Image.new("RGB", (width, _HEADER + rows * (tile + _CAPTION + _GAP) + _GAP), _PAPER)
    draw = ImageDraw.Draw(sheet)
    classes = store.schema[label].classes if label is not None else ()
    title, small = _load_font(20), _load_font(13)
    name = store.url.rpartition("/")[2]
    draw.text((_GAP, 16), _shorten(draw, name, title, width // 2), _INK, title)
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
        draw.text((left, top + tile + 5), _shorten(draw, caption, small, tile), _INK, small)
        draw.text((left, top + tile + 21), _shorten(draw, f"#{index}{size}", small, tile), _FAINT, small)
    return sheet


def _paste(sheet: Image, draw: ImageDraw, record: Record, image: str, square: tuple[int, int, int]) -> str:
    """Draw an image into its square, and return its size as text."""
    from PIL import Image  # as above

    from penstock.transforms.decode import decode

    left, top, tile = square
    try:
        picture = Image.fromarray(decode(bytes(record.fields[image])))
    except DecodeError:
        draw.text((left + tile // 2, top + tile // 2), "cannot be decoded", _ALARM, _load_font(13), anchor="mm")
        return ""
    size = f"   {picture.width} x {picture.height}"
    enlarged = tile // max(picture.size)
    if enlarged > 1:  # small images are enlarged by a whole factor, so that their pixels are visible
        picture = picture.resize((picture.width * enlarged, picture.height * enlarged), Image.Resampling.NEAREST)
    picture.thumbnail((tile, tile), Image.Resampling.LANCZOS)
    sheet.paste(picture, (left + (tile - picture.width) // 2, top + (tile - picture.height) // 2))
    return size


def _load_font(size: int) -> FreeTypeFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)  # type: ignore[return-value]  # without FreeType it is a bitmap font, which works too


def _shorten(draw: ImageDraw, text: str, font: FreeTypeFont, width: int) -> str:
    """Escape the text, and shorten it to the width."""
    text = escape_unprintable(text)
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(text + "…", font) > width:
        text = text[:-1]
    return text + "…"
