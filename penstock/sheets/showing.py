"""Samples with their annotations drawn on them, before and after augmentation: ``ps.show``, ``penstock show``.

::

    store ──read──> record ──────────────────────> tile "before" ─┐
      └──StoreDataset(transform) with its key ───> tile "after"  ─┴─> sheet, with a legend of the classes

The tile "after" is drawn from the sample that a loader with the same seed gives in this epoch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock import stores
from penstock.datasets.base import fetch, find_upright
from penstock.datasets.store.dataset import StoreDataset
from penstock.datasets.store.selection import FieldSelection
from penstock.errors import ArgumentError
from penstock.loader.past import PastSample
from penstock.progress import make_reporter
from penstock.rng import seeding_globals
from penstock.sample import DatasetLike, Sample, SampleKeys, tree_leaves
from penstock.sheets.annotated import Annotated, find_annotations, make_roles
from penstock.sheets.batch_samples import BatchSamples, is_batch
from penstock.sheets.canvas import check_output, refuse_existing, save
from penstock.sheets.sheet import pick, pick_by_objects
from penstock.sheets.shown_pixels import PixelForm, as_array
from penstock.sheets.tile_sheet import Cell, check_sheet_size, draw_sheet
from penstock.sheets.tiles import draw_tile
from penstock.stores.base import Store
from penstock.stores.indices import check_index
from penstock.transforms.base import Op
from penstock.wording import counted

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["DatasetSamples", "StoreSamples", "is_dataset", "show"]

_TILES: Final = range(32, 4097)
_MAX_SEED: Final = (1 << 63) - 1


def show(
    store: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Store | DatasetLike,
    n: int = 16,
    *,
    augment: Callable[[Sample], Sample] | Op | Sequence[Op] | None = None,
    fields: str | Sequence[str] | Mapping[str, str] | None = None,
    kinds: Mapping[str, str | None] | None = None,
    indices: Sequence[int] | None = None,
    by: str | None = None,
    seed: int = 0,
    epoch: int = 0,
    output: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    columns: int | None = None,
    tile: int = 320,
    progress: bool = False,
) -> Image:
    """Draw samples with their boxes, class names, keypoints, masks and instances.

    Parameters
    ----------
    store : str, path, sequence of paths, Store, dataset, or batch
        A path is opened, and closed afterwards. A batch of a loader (a list, tuple or mapping of arrays, tensors and
        lists) is drawn sample by sample, and a list that ``loader.samples_of(step)`` returned, too. Of a
        :class:`~penstock.StoreDataset` with a transform, samples are drawn before and after it. Of any other map-style
        dataset, they are drawn as it returns them, and annotations are found by their names (``boxes``, ``labels``,
        ``keypoints``, ``masks``).
    n : int
        The largest number of samples.
    augment : Pipeline, list of ops, or callable, optional
        As ``transform`` of a :class:`~penstock.StoreDataset`; each sample is then drawn before and after it.
    fields, kinds : optional
        As for a :class:`~penstock.StoreDataset`: the structure of samples, and kinds of fields that the schema of the
        store does not have.
    indices : sequence of int, optional
        The records to draw, instead of ``n``. Default: each class in turn, evenly spaced in the store.
    by : str, optional
        A field of the store: its values are drawn in turn, of a field of the classes of objects each class. Default:
        the label, if there is one.
    seed, epoch : int
        Of the random numbers: those of a loader with this ``seed`` and ``seed_per_sample=True``, in this epoch.
    output : str or path, optional
        A file to write: .png, .jpg, .jpeg or .webp.
    overwrite : bool
        Whether an existing file is replaced.
    columns : int, optional
        Samples in a row. Default: 4, or 3 before and after.
    tile : int
        Side of the square of an image in pixels, 32 to 4096. Images are scaled to fit, not cropped.
    progress : bool
        Whether progress is shown on standard error.

    Returns
    -------
    PIL.Image.Image
        The sheet; a notebook displays it.

    Raises
    ------
    ArgumentError
        If there are no images, an argument is out of range, or the file exists already or cannot be written.
    StoreError
        If the store cannot be opened or read.
    Exception
        What ``augment`` or the dataset raises, with a note of store, key and index.

    Notes
    -----
    Each class has a colour by its number, the first seven those of a palette; the legend names those that are drawn.
    Pixels of normalised floats are shown as they were before. A record without an image, or whose image cannot be
    decoded, has a tile that says so.
    """
    target = None if output is None else check_output(output)
    if target is not None:
        refuse_existing(target, overwrite=overwrite)
    if min(n, 1 if columns is None else columns) < 1 or tile not in _TILES:
        raise ArgumentError(
            f"n and columns must be at least 1, and tile {_TILES[0]} to {_TILES[-1]}, got {n}, {columns} and {tile}"
        )
    if not (0 <= seed <= _MAX_SEED and 0 <= epoch <= _MAX_SEED):
        raise ArgumentError(f"seed and epoch must be in [0, 2**63), got {seed} and {epoch}")
    with _open_samples(store, augment, fields, kinds) as samples:
        shown = _choose(samples, n, indices, by)
        per_row = columns or (3 if samples.has_transform else 4)
        check_sheet_size(len(shown), 1 + samples.has_transform, per_row, tile)
        cells = list(_draw_cells(samples, shown, (seed, epoch), tile, progress=progress))
        sheet = draw_sheet(cells, samples.title, f"{len(shown):,} of {counted(samples.total, samples.noun)}", per_row)
    if target is not None:
        save(sheet, target)
    return sheet


class StoreSamples:
    """Samples of a store, before and after a transform."""

    noun = "record"

    def __init__(self, dataset: StoreDataset) -> None:
        self.dataset, self.store = dataset, dataset.store
        self._selection = FieldSelection(self.store, dataset.fields)
        fields = self._selection.to_tree(self._selection.names)
        self.roles = make_roles(self.store.schema, fields, dataset.kinds)
        self.has_image = any(role.kind == "image" for role in tree_leaves(self.roles))
        self.form_before = PixelForm("HWC", orient=bool(dataset.upright))
        self.form = PixelForm.of(dataset.transform)
        self.has_transform = dataset.transform is not None
        self.title = self.store.url.rpartition("/")[2] or self.store.url
        self.total = len(self.store)
        labels = (self._selection.names[name] for name, kind in self._selection.stored.items() if kind == "label")
        self.label_field = next(labels, None)

    def before(self, index: int, keys: SampleKeys | None = None) -> tuple[str, Annotated]:  # noqa: ARG002  # as below
        """Key and annotations of a record."""
        record = self.store.read([index])[0]
        values = {name: record.fields.get(field) for name, field in self._selection.names.items()}
        return record.key, find_annotations(self._selection.to_tree(values), self.roles)

    def after(self, index: int, keys: SampleKeys) -> Annotated:
        """Annotations of the transformed sample."""
        return find_annotations(fetch(self.dataset, [index], keys)[0], self.roles)


class DatasetSamples:
    """Samples of any map-style dataset, as it returns them."""

    noun = "sample"
    store = label_field = roles = None
    has_transform = has_image = False

    def __init__(self, dataset: DatasetLike, title: str = "") -> None:
        self.dataset = dataset
        form = PixelForm.of(getattr(dataset, "transform", None))
        self.form = self.form_before = replace(form, orient=bool(find_upright(dataset)))
        self.title = title or type(dataset).__name__
        self.total = len(dataset)

    def before(self, index: int, keys: SampleKeys) -> tuple[str, Annotated]:
        """Annotations of a sample; it has no key."""
        return "", find_annotations(fetch(self.dataset, [index], keys)[0])


class PastSamples(DatasetSamples):
    """Samples that a loader has given, built again with their own random numbers."""

    def __init__(self, samples: Sequence[PastSample]) -> None:
        self._samples, first = samples, samples[0]
        part = StoreSamples(first.dataset) if isinstance(first.dataset, StoreDataset) else DatasetSamples(first.dataset)
        self.form, self._roles, self.total = part.form, part.roles, len(samples)
        self.form_before = part.form if isinstance(part, StoreSamples) and part.has_transform else part.form_before
        self.title = f"epoch {first.epoch}, batch {first.batch}, rank {first.rank}"

    def before(self, index: int, keys: SampleKeys) -> tuple[str, Annotated]:  # noqa: ARG002  # it has its own
        """Name, or index, and annotations of a sample."""
        sample = self._samples[index]
        return sample.key or f"index {sample.index}", find_annotations(sample.load(), self._roles)


@contextmanager
def _open_samples(
    store: DatasetLike,
    augment: Callable[[Sample], Sample] | Op | Sequence[Op] | None,
    fields: str | Sequence[str] | Mapping[str, str] | None,
    kinds: Mapping[str, str | None] | None,
) -> Iterator[StoreSamples | DatasetSamples]:
    if isinstance(store, Store):
        # No decode indices: they help where batches are filled.
        yield StoreSamples(StoreDataset(store, fields, augment, kinds=kinds, index=None))
    elif isinstance(store, list) and store and all(isinstance(each, PastSample) for each in store):
        yield PastSamples(store)
    elif is_batch(store):
        yield DatasetSamples(BatchSamples(store), "batch")
    elif not is_dataset(store):
        with stores.open(store) as opened:
            yield StoreSamples(StoreDataset(opened, fields, augment, kinds=kinds, index=None))
    elif augment is not None or fields is not None or kinds is not None:
        raise ArgumentError(
            f"augment, fields and kinds must be given to the dataset itself, got them beside a {type(store).__name__}"
        )
    elif isinstance(store, StoreDataset):
        yield StoreSamples(store)
    elif not hasattr(store, "__len__"):
        raise ArgumentError(f"the dataset must have a length, but {type(store).__name__} has none")
    else:
        yield DatasetSamples(store)


def is_dataset(value: object) -> bool:
    """Return whether samples are taken from it with brackets; what :func:`penstock.open` takes is no dataset."""
    if isinstance(value, str | bytes | os.PathLike | list | tuple) or not hasattr(value, "__getitem__"):
        return False
    return not any(stores.OBJECTS.get(name).wraps(value) for name in stores.OBJECTS)


def _choose(samples: StoreSamples | DatasetSamples, n: int, indices: Sequence[int] | None, by: str | None) -> list[int]:
    """Choose the samples to draw."""
    if not samples.total:
        raise ArgumentError(f"{samples.title} must have at least one {samples.noun}, got none")
    if indices is not None:
        if by is not None:
            raise ArgumentError("indices and by cannot be given together")
        if not len(indices):
            raise ArgumentError("indices must name at least one record, got none")
        return [_check(index, samples.total) for index in indices]
    field = by or samples.label_field
    if field is None:
        return pick(np.zeros(samples.total, np.int64), n)
    if samples.store is None:
        raise ArgumentError(f"by must name a field of a store, got {by!r} for a {samples.title}")
    kind = samples.store.schema[field]
    if kind.kind in {"label", "int", "text"}:
        return pick(samples.store.column(field), n)
    if kind.array is not None and kind.array.axes == (None,) and kind.array.dtype.kind in "iu":
        return pick_by_objects(samples.store.ragged_column(field), n)
    raise ArgumentError(
        "by must name a field of kind label, int or text, or of the classes of objects, such as int64[*], got "
        f"{field!r} of kind {kind.kind}"
    )


def _check(index: object, total: int) -> int:
    number = check_index(index, "a sheet")
    if not -total <= number < total:
        raise ArgumentError(f"indices must be in [0, {total}), got {number}")
    return number % total


def _draw_cells(
    samples: StoreSamples | DatasetSamples, shown: list[int], key: tuple[int, int], side: int, *, progress: bool
) -> Iterator[Cell]:
    with ExitStack() as stack:
        report = make_reporter(progress, "drawing", stack)
        for done, index in enumerate(shown):
            report(done, len(shown), 0)
            keys = SampleKeys(*key, np.array([index], np.int64))
            yield _draw_cell(samples, index, keys, side)
        report(len(shown), len(shown), 0)


def _draw_cell(samples: StoreSamples | DatasetSamples, index: int, keys: SampleKeys, side: int) -> Cell:
    with seeding_globals(put_back=True):
        key, sample = samples.before(index, keys)
    if not samples.has_image:
        _refuse_no_image(sample, samples.title)
    hides_zero = samples.store is not None and _has_points_without_place(sample.keypoints)
    before = draw_tile(sample, side, samples.form_before, hides_zero=hides_zero)
    cell = Cell(index, key, [sample], [before])
    if isinstance(samples, StoreSamples) and samples.has_transform and before.size != (0, 0):  # else not decoded
        with seeding_globals(put_back=True):
            after = samples.after(index, keys)
        _refuse_no_image(after, samples.title)
        cell.samples.append(after)
        cell.tiles.append(draw_tile(after, side, samples.form, hides_zero=hides_zero))
    return cell


def _refuse_no_image(sample: Annotated, title: str) -> None:
    if sample.image is None:
        raise ArgumentError(
            f"a sample must have an image, but one of {title} has none; name it 'image', or give "
            "kinds={'its name': 'image'}"
        )


def _has_points_without_place(points: object) -> bool:
    """Return whether some points are (0, 0) with visibility 0: as in COCO, these are not annotated."""
    try:
        array = as_array([] if points is None else points)
    except ArgumentError:
        return False
    if array.ndim < 2 or array.shape[-1] != 3 or array.dtype.kind not in "iuf":
        return False
    return bool((array.reshape(-1, 3) == 0).all(axis=1).any())
