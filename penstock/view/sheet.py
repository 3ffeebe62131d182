"""A contact sheet: samples of a store with their labels, in one picture.

Every class is shown once before any class is shown twice. The same store gives the same sheet. It lets a person see
wrong labels, which no checksum detects.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from penstock import stores
from penstock.errors import ArgumentError, DecodeError
from penstock.ragged import Ragged
from penstock.sample import Record
from penstock.stores.base import Store
from penstock.view.canvas import ALARM, FAINT, FRAME, GAP, INK, PAPER, as_rgb, check_output, load_font, save, shorten
from penstock.wording import counted

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

__all__ = ["contact_sheet", "pick", "pick_by_objects"]

_CAPTION: Final = 38
_HEADER: Final = 56


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
    target = check_output(path)
    if min(samples, columns, tile) < 1:
        raise ArgumentError(f"samples, columns and tile must be at least 1, got {samples}, {columns} and {tile}")
    image = next((name for name, field in store.schema.fields.items() if field.is_image), None)
    if image is None or not len(store):
        raise ArgumentError(f"the store must have at least one image, but {store!r} has none")
    label = next((name for name, field in store.schema.fields.items() if field.kind == "label"), None)
    shown = pick(store.column(label) if label is not None else np.zeros(len(store), np.int64), samples)
    sheet = _draw(store, shown, image, label, columns, tile)
    save(sheet, target)
    return shown


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


def pick_by_objects(labels: Ragged, samples: int) -> list[int]:
    """Choose the records: in turn from those with an object of each class, then those without an object.

    A record is chosen once, for the class with the fewest records of those that it has. Of each class, records are
    spread over the store; ordered by class, then index.
    """
    owners = np.repeat(np.arange(len(labels)), labels.counts)
    classes = np.unique(labels.values)
    members = [np.unique(owners[labels.values == each]) for each in classes]
    if len(none := np.flatnonzero(labels.counts == 0)):
        members.append(none)
    # Of too many classes some, spread over all; then the others, where one record stands for several of these.
    some = {int(at) for at in np.linspace(0, len(members) - 1, min(samples, len(members)))}
    chosen: dict[int, int] = {}
    for turns in (some, set(range(len(members))) - some):
        waiting = sorted(turns, key=lambda at: (len(members[at]), at))
        groups = {at: iter(_spread(members[at])) for at in waiting}
        while waiting and len(chosen) < samples:
            for at in list(waiting):
                index = next((each for each in groups[at] if each not in chosen), None)
                if index is None:
                    waiting.remove(at)
                elif len(chosen) < samples:
                    chosen[index] = at
    return sorted(chosen, key=lambda index: (chosen[index], index))


def _spread(group: NDArray[np.int64]) -> list[int]:
    """Members in an order in which the first ones, however many, are spread over all: halves, quarters, eighths."""
    places = np.arange(len(group))
    key = np.zeros(len(group), np.int64)
    for _ in range(len(group).bit_length()):
        key, places = key * 2 + places % 2, places // 2
    found: list[int] = group[np.argsort(key, kind="stable")].tolist()
    return found


def _draw(store: Store, shown: list[int], image: str, label: str | None, columns: int, tile: int) -> Image:
    from PIL import Image, ImageDraw  # the name above is the type, this one is the module

    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    width = max(columns * (tile + GAP) + GAP, 480)
    sheet = Image.new("RGB", (width, _HEADER + rows * (tile + _CAPTION + GAP) + GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    classes = store.schema[label].classes if label is not None else ()
    title, small = load_font(20), load_font(13)
    name = store.url.rpartition("/")[2]
    draw.text((GAP, 16), shorten(draw, name, title, width // 2), INK, title)
    held = f"{len(shown):,} of {counted(len(store), 'record')}" + (
        f", {counted(len(classes), 'class')}" if classes else ""
    )
    draw.text((width - GAP, 22), held, FAINT, small, anchor="ra")
    for position, index in enumerate(shown):
        left = GAP + position % columns * (tile + GAP)
        top = _HEADER + position // columns * (tile + _CAPTION + GAP)
        record = store.read([index])[0]
        draw.rectangle((left, top, left + tile - 1, top + tile - 1), FRAME)
        size = _paste(sheet, draw, record, image, (left, top, tile))
        number = record.fields[label] if label is not None else None
        caption = record.key if number is None else classes[number] if 0 <= number < len(classes) else str(number)
        draw.text((left, top + tile + 5), shorten(draw, caption, small, tile), INK, small)
        draw.text((left, top + tile + 21), shorten(draw, f"#{index}{size}", small, tile), FAINT, small)
    return sheet


def _paste(sheet: Image, draw: ImageDraw, record: Record, image: str, square: tuple[int, int, int]) -> str:
    """Draw an image into its square, and return its size as text."""
    from PIL import Image  # as above

    from penstock.transforms.decoding.decode import decode

    left, top, tile = square
    try:
        stored = record.fields[image]
        picture = Image.fromarray(as_rgb(stored) if isinstance(stored, np.ndarray) else decode(bytes(stored)))
    except DecodeError:
        draw.text((left + tile // 2, top + tile // 2), "cannot be decoded", ALARM, load_font(13), anchor="mm")
        return ""
    size = f"   {picture.width} x {picture.height}"
    enlarged = tile // max(picture.size)
    if enlarged > 1:  # small images are enlarged by a whole factor, so that their pixels are visible
        picture = picture.resize((picture.width * enlarged, picture.height * enlarged), Image.Resampling.NEAREST)
    picture.thumbnail((tile, tile), Image.Resampling.LANCZOS)
    sheet.paste(picture, (left + (tile - picture.width) // 2, top + (tile - picture.height) // 2))
    return size
