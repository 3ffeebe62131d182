"""What every sheet needs: colours, fonts, shortened texts, stored pixels as a person sees them, and the output file.

Called by :mod:`.sheet`, :mod:`.tiles` and :mod:`.showing`. Nothing here reads a store. Pillow is imported by the
functions that draw.
"""

from __future__ import annotations

import colorsys
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.pixel_rows import to_rgb
from penstock.sample import Array
from penstock.wording import escape_unprintable

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

__all__ = [
    "ALARM",
    "FAINT",
    "FRAME",
    "GAP",
    "INK",
    "PALETTE",
    "PAPER",
    "Color",
    "as_rgb",
    "check_output",
    "color_of",
    "load_font",
    "refuse_existing",
    "save",
    "shorten",
]

Color = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""

GAP: Final = 14
"""Pixels between tiles."""

PAPER: Final = (250, 250, 248)
FRAME: Final = (226, 226, 222)
INK: Final = (28, 28, 30)
FAINT: Final = (120, 120, 124)
ALARM: Final = (178, 34, 34)

PALETTE: Final[tuple[Color, ...]] = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)
"""Colours of classes that people with any colour vision can tell apart: M. Okabe and K. Ito, "Color universal design",
2008, without black."""

_TURN: Final = 0.6180339887498949
"""Of a circle of hues from one number to the next: that of the golden ratio keeps any few of them apart."""
_LIGHTNESS: Final = (0.5, 0.66, 0.36)
_SATURATION: Final = (1.0, 0.7, 0.85, 0.55)

_FORMATS: Final = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


def color_of(number: int) -> Color:
    """The colour of a class, or of a value of a mask: of :data:`PALETTE`, and behind it another for each number."""
    if 0 <= number < len(PALETTE):
        return PALETTE[number]
    hue, lightness, saturation = number * _TURN % 1, _LIGHTNESS[number % 3], _SATURATION[number // 3 % 4]
    red, green, blue = (round(255 * part) for part in colorsys.hls_to_rgb(hue, lightness, saturation))
    return red, green, blue


def check_output(path: str | os.PathLike[str]) -> Path:
    """Return the path of a sheet, checked before anything is drawn.

    Raises ArgumentError if its extension is unknown, or its folder does not exist.
    """
    target = Path(os.fsdecode(path))
    if target.suffix.lower() not in _FORMATS:
        raise ArgumentError(f"the name of a sheet must end in {', '.join(_FORMATS)}, got {str(target)!r}")
    if not target.parent.is_dir():
        raise ArgumentError(
            f"the folder {str(target.parent)!r} of the sheet {target.name!r} does not exist; make it first"
        )
    return target


def refuse_existing(target: Path, *, overwrite: bool) -> None:
    """Raise :class:`ArgumentError` if a file exists that must not be replaced."""
    if target.exists() and not overwrite:
        raise ArgumentError(
            f"the file {str(target)!r} exists already; give overwrite=True (--overwrite) to replace it, or another name"
        )


def save(sheet: Image, target: Path) -> None:
    """Write a sheet; nothing is written unless it can be encoded.

    Raises ArgumentError if it cannot be written.
    """
    file = io.BytesIO()
    try:
        sheet.save(file, _FORMATS[target.suffix.lower()])
        target.write_bytes(file.getvalue())
    except (OSError, ValueError) as error:  # Pillow raises ValueError for sides that a format cannot have
        reason = getattr(error, "strerror", None) or error
        raise ArgumentError(f"the sheet {str(target)!r} cannot be written: {reason}") from error


def as_rgb(pixels: Array) -> NDArray[np.uint8]:
    """Stored pixels as a person can see them: 16 bits as 8, floats by their range, one channel as gray."""
    values = to_rgb(pixels)
    if values.dtype == np.uint16:
        values = values >> 8
    elif values.dtype != np.uint8:
        values = np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0)
        low, high = float(values.min()), float(values.max())
        values = (values - low) * (255 / (high - low) if high > low else 0)
    return np.ascontiguousarray(values, np.uint8)


def load_font(size: int) -> FreeTypeFont:
    """Load Pillow's own font."""
    from PIL import ImageFont

    return ImageFont.load_default(size)  # type: ignore[return-value]  # without FreeType it is a bitmap font, which works too


def shorten(draw: ImageDraw, text: str, font: FreeTypeFont, width: int) -> str:
    """Escape the text, and shorten it to the width in pixels."""
    text = escape_unprintable(text)
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(text + "…", font) > width:
        text = text[:-1]
    return text + "…"
