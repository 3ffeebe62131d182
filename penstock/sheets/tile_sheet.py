"""Puts tiles together: one cell for each sample, with its captions, under a title and a legend of the classes.

Called by :mod:`.showing`. Nothing here reads a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import ArgumentError
from penstock.sheets.annotated import Annotated
from penstock.sheets.canvas import ALARM, FAINT, FRAME, GAP, INK, PAPER, color_of, load_font, shorten
from penstock.sheets.tiles import Tile

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

__all__ = ["HEADER", "Cell", "check_sheet_size", "draw_sheet"]

HEADER: Final = 52
"""Pixels above the legend."""

_BETWEEN: Final = 4
"""Pixels between the tiles of one sample."""

_MAX_PIXELS: Final = 1 << 28
_LEGEND_ROWS: Final = 4
_LEAST_WIDTH: Final = 480


@dataclass(slots=True)
class Cell:
    """A sample on a sheet."""

    index: int  # of the sample
    key: str  # its name; empty if it has none
    samples: list[Annotated]  # the sample; the second one is augmented
    tiles: list[Tile]  # one for each


def check_sheet_size(cells: int, tiles: int, columns: int, side: int) -> None:
    """Raise :class:`ArgumentError` if a sheet would be too large; called before anything is drawn."""
    width = min(columns, cells) * (tiles * side + GAP)
    height = -(-cells // columns) * (side + GAP)
    if width * height > _MAX_PIXELS:
        raise ArgumentError(
            f"a sheet must have at most {_MAX_PIXELS:,} pixels, got {width:,} x {height:,}; give a smaller n or tile"
        )


def draw_sheet(cells: Sequence[Cell], title: str, count: str, columns: int) -> Image:
    """Draw all cells, ``columns`` in a row."""
    from PIL import Image, ImageDraw  # the name above is the type, this one is the module

    side = cells[0].tiles[0].side
    tiles = max(len(cell.tiles) for cell in cells)
    columns = min(columns, len(cells))
    across = tiles * side + (tiles - 1) * _BETWEEN
    width = max(columns * (across + GAP) + GAP, _LEAST_WIDTH)
    line = _font_size(side) + 6
    lines = 3 if any(tile.problems for cell in cells for tile in cell.tiles) else 2
    caption = lines * line + 4
    legend = _arrange_legend(cells, width)
    top = HEADER + (len(legend) * 22 + 8 if legend else 0)
    rows = -(-len(cells) // columns)
    sheet = Image.new("RGB", (width, top + rows * (side + caption + GAP)), PAPER)
    draw = ImageDraw.Draw(sheet)
    _draw_header(draw, title, count, width)
    _draw_legend(draw, legend)
    for position, cell in enumerate(cells):
        left = GAP + position % columns * (across + GAP)
        start = top + position // columns * (side + caption + GAP)
        if len(cell.tiles) < tiles:
            draw.rectangle((left, start, left + across - 1, start + side - 1), FRAME)
        for number, tile in enumerate(cell.tiles):
            place = left + number * (side + _BETWEEN)
            sheet.paste(tile.picture, (place, start))
            _draw_caption(draw, cell, number, (place, start + side + 4), line)
    return sheet


def _font_size(side: int) -> int:
    return max(11, side // 24)


def _draw_header(draw: ImageDraw, title: str, count: str, width: int) -> None:
    large, small = load_font(20), load_font(13)
    draw.text((GAP, 16), shorten(draw, title, large, width // 2), INK, large)
    draw.text((width - GAP, 22), count, FAINT, small, anchor="ra")


def _draw_caption(draw: ImageDraw, cell: Cell, number: int, place: tuple[int, int], line: int) -> None:
    """Index and key; class, size and numbers of objects; problems."""
    left, top = place
    sample, tile = cell.samples[number], cell.tiles[number]
    font = load_font(_font_size(tile.side))
    name = [] if sample.label is None else [_label_name(sample)]
    first = f"#{cell.index} {cell.key}".rstrip() if number == 0 else "augmented"
    texts = [(first, INK), (", ".join([*name, *tile.facts]), FAINT), ("; ".join(tile.problems), ALARM)]
    for row, (text, ink) in enumerate(texts):
        if text:
            draw.text((left, top + row * line), shorten(draw, text, font, tile.side), ink, font)


def _label_name(sample: Annotated) -> str:
    number = sample.label
    assert number is not None, "asked for samples with a label"
    return sample.label_classes[number] if 0 <= number < len(sample.label_classes) else str(number)


LegendRow = list[tuple[int, str, int | None]]
"""Left edge, text and class number of each entry; None: the text says how many are left out."""


def _arrange_legend(cells: Sequence[Cell], width: int) -> list[LegendRow]:
    """Rows of entries for the classes that are drawn, by number."""
    from PIL import Image, ImageDraw  # as above

    draw, font = ImageDraw.Draw(Image.new("RGB", (1, 1))), load_font(13)
    classes = sorted({named for cell in cells for tile in cell.tiles for named in tile.classes})
    rows: list[LegendRow] = []
    left = width
    for done, (number, name) in enumerate(classes):
        text = shorten(draw, name, font, 160)
        needed = 18 + int(draw.textlength(text, font)) + 18
        if left + needed > width - GAP:
            if len(rows) == _LEGEND_ROWS:
                rows[-1][-1:] = [(rows[-1][-1][0], f"and {len(classes) - done + 1:,} more", None)]
                break
            rows.append([])
            left = GAP
        rows[-1].append((left, text, number))
        left += needed
    return rows


def _draw_legend(draw: ImageDraw, rows: list[LegendRow]) -> None:
    font = load_font(13)
    for place, row in enumerate(rows):
        top = HEADER + place * 22
        for left, text, number in row:
            if number is not None:
                draw.rectangle((left, top + 2, left + 12, top + 14), color_of(number))
            draw.text((left + 18, top), text, INK, font)
