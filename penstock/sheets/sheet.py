"""A contact sheet: samples of a store with their labels, in one picture.

Every class is shown once before any class is shown twice. The same store gives the same sheet. It lets a person see
wrong labels, which no checksum detects.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from penstock import stores
from penstock.errors import ArgumentError
from penstock.ragged import Ragged
from penstock.sample import Record
from penstock.sheets.annotated import Annotated
from penstock.sheets.canvas import check_output, save
from penstock.sheets.shown_pixels import PixelForm
from penstock.sheets.tile_sheet import Cell, draw_sheet
from penstock.sheets.tiles import draw_tile
from penstock.stores.base import Store
from penstock.wording import counted

__all__ = ["contact_sheet", "pick", "pick_by_objects"]


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
    classes = store.schema[label].classes if label is not None else ()
    cells = [_make_cell(store.read([index])[0], image, label, classes, tile) for index in shown]
    count = f"{len(shown):,} of {counted(len(store), 'record')}"
    count += f", {counted(len(classes), 'class')}" if classes else ""
    save(draw_sheet(cells, store.url.rpartition("/")[2], count, columns), target)
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


def _make_cell(record: Record, image: str, label: str | None, classes: tuple[str, ...], tile: int) -> Cell:
    sample = Annotated(record.fields[image], None if label is None else record.fields[label], classes)
    return Cell(record.index, record.key, [sample], [draw_tile(sample, tile, PixelForm("HWC"))])
