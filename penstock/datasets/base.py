"""The interface of datasets, and the functions that call datasets for samples.

Any object with ``__getitem__`` is a dataset for the loader. :class:`Dataset` adds operators. Optional methods: those of
:class:`Filler` write samples into a batch's arrays, ``load_samples`` reads many samples at once, ``prefetch`` looks
ahead, ``fingerprint`` distinguishes a dataset from others of its length. Each sample is built with its own random key,
and errors name its index. A subclass that overrides ``__getitem__`` only is called sample by sample. This module starts
no thread and keeps no state.

Datasets are called in two ways, as by torch's loader and datasets::

    fetch          a batch:   __getitems__(indices), if the dataset has it; else as below
    iter_samples   samples:   dataset[index] for each, in the order of indices, each when it is needed

Datasets over others (:class:`Wrapper`) call those in the same way. Code that draws from a global generator depends on
the order of calls: ``load_samples`` may group reads, but samples are built in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, runtime_checkable

from penstock.datasets.error_location import add_location
from penstock.errors import ArgumentError, SampleError
from penstock.frameworks import stream_types
from penstock.rng import sample_scope, seeds_globals
from penstock.sample import ArraySpec, Batch, DatasetLike, Index, Sample, SampleKeys, Tree, Watch, tree_leaves
from penstock.wording import NotebookView, ShortRepr

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "ROWS_PER_FILL",
    "Dataset",
    "Filler",
    "IndexBatch",
    "IterableDataset",
    "Wrapper",
    "choose_rows_per_fill",
    "fetch",
    "fetch_one",
    "find_upright",
    "get_each",
    "has_prefetch",
    "is_iterable",
    "iter_samples",
    "loads_many",
    "look_ahead",
    "prefetch",
    "register_sum",
    "rows_per_fill",
    "spec_of",
    "takes_many",
]

T_co = TypeVar("T_co", covariant=True)


class Dataset(ShortRepr, NotebookView, Generic[T_co]):
    """Base of map-style datasets: a subclass defines ``__getitem__`` and, where it can, ``__len__``.

    A subclass may define ``load_samples(indices, keys)``, which the loader then calls for a whole chunk. It returns
    what ``__getitem__`` returns with the same keys: as a list, or as an iterator that builds each sample when it is
    needed (a generator). With an iterator, code that draws from global generators runs in the order of indices, also if
    several datasets are concatenated. The call, and the first sample of an iterator, may take the loader's
    ``stall_timeout`` once for each of the indices; a further sample of an iterator, once.

    A subclass whose storage is slow may define ``prefetch(indices)``, which starts reading and returns at once. The
    loader calls it with the indices of each batch as soon as they are known, in the process that builds the batch, and
    from one thread while others build samples. An error is logged at debug level and ignored. If ``prefetches`` is
    defined and False at the start of an epoch, ``prefetch`` is not called in it. If it returns False 16 times in a row,
    there was nothing to read: it is then called for one batch in 16, until it returns something else.

    A subclass may define ``fingerprint() -> str``, which differs for other samples: a loader then refuses the state of
    another dataset.
    """

    def __getitem__(self, index: Index) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other: DatasetLike) -> DatasetLike:  # whose module imports this one
        """Return a :class:`~penstock.ConcatDataset` of both; of streams, a :class:`~penstock.ChainDataset`."""
        return _sum_types[isinstance(self, IterableDataset)]([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Base of datasets that are streams: a subclass defines ``__iter__``.

    If it or its iterator has ``state_dict`` and ``load_state_dict``, a resumed loader restores its state; if not, the
    stream is run forward to its position.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


_sum_types: dict[bool, Callable[[list[DatasetLike]], DatasetLike]] = {}
"""What ``+`` gives, by whether datasets are streams: set by the module of these classes, which imports this one."""


def register_sum(*, of_streams: bool, join: Callable[[list[DatasetLike]], DatasetLike]) -> None:
    """Let ``+`` of streams, or of map-style datasets, give ``join([left, right])``."""
    _sum_types[of_streams] = join


class IndexBatch(list[Index]):
    """The indices of a batch, with the object that a batch sampler yielded for them, if that is not a list.

    ``__getitems__`` is called with that object (an array, a tensor, a tuple), as by torch. If it cannot be iterated,
    there are no indices.
    """

    __slots__ = ("given",)

    def __init__(self, given: Index) -> None:
        try:
            indices = iter(given)
        except TypeError:
            indices = iter(())
        super().__init__(indices)
        self.given: Index = list(self) if isinstance(given, Iterator) else given

    def check(self) -> None:
        """Raise Python's own TypeError if the object cannot be iterated."""
        iter(self.given)


class Wrapper:
    """A dataset over other datasets of any kind, which calls them as torch's own datasets do."""

    def wrapped_datasets(self) -> Iterable[DatasetLike]:
        """Return the inner datasets."""
        raise NotImplementedError(f"{type(self).__name__} must define wrapped_datasets")

    def fetch_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> Batch:
        """The samples of a batch: what torch's dataset returns for ``__getitems__``, or else for each index."""
        raise NotImplementedError(f"{type(self).__name__} must define fetch_samples")

    def iter_samples(self, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Sample]:
        """Return what ``self[index]`` returns for each, in order.

        It is called if an inner dataset loads many samples at once.
        """
        raise NotImplementedError(f"{type(self).__name__} must define iter_samples")

    def prefetch(self, indices: Sequence[Index]) -> bool:
        """Call :func:`prefetch` for the inner datasets, with their own indices; False if it was False for all."""
        raise NotImplementedError(f"{type(self).__name__} must define prefetch")


@runtime_checkable
class Filler(Protocol):
    """A dataset that writes samples into the rows of a batch instead of returning them.

    An attribute ``rows_per_fill`` may say how many rows a call of :meth:`fill` gets at most: 32 if there is none, which
    suits images that are decoded; more where rows are only copied.
    """

    def spec(self) -> Tree | None:
        """Tree of :class:`~penstock.sample.ArraySpec` of one sample; None if samples have no fixed shape.

        An array whose first length varies has a :class:`~penstock.ragged.RaggedSpec`.
        """
        ...

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Write sample ``indices[j]`` into row ``rows[j]`` (``j`` if None) of each array of ``out``.

        Rows of an array whose first length varies go to :meth:`penstock.ragged.RaggedRows.write`, which takes lengths.
        Thread-safe. ``keys.indices[j]`` is the index that the sampler drew: a wrapper translates ``indices``, but not
        ``keys``.
        """
        ...


ROWS_PER_FILL: Final = 64
"""Most rows of a call of ``fill``, unless the dataset says otherwise: images are decoded, which takes milliseconds."""

_FILLED_NBYTES: Final = 512 << 10
_MOST_ROWS: Final = 1024


def rows_per_fill(dataset: DatasetLike) -> int:
    """Most rows of a call of ``fill``: the attribute ``rows_per_fill`` of a dataset, or the least of those within."""
    if isinstance(dataset, Wrapper):
        return min(map(rows_per_fill, dataset.wrapped_datasets()), default=ROWS_PER_FILL)
    rows = getattr(dataset, "rows_per_fill", ROWS_PER_FILL)
    if not isinstance(rows, int) or rows < 1:
        raise ArgumentError(
            f"rows_per_fill of {type(dataset).__name__} must be an int of at least 1, the most rows of a call of fill, "
            f"got {rows!r:.80}"
        )
    return rows


def choose_rows_per_fill(spec: Tree | None) -> int:
    """Most rows of a call of ``fill`` that only copies and converts: as many as make 512 KiB."""
    nbytes = sum(leaf.nbytes for leaf in tree_leaves(spec) if isinstance(leaf, ArraySpec))
    return min(max(_FILLED_NBYTES // max(nbytes, 1), ROWS_PER_FILL), _MOST_ROWS)


def spec_of(dataset: DatasetLike) -> Tree | None:
    """The spec of one sample if ``dataset`` fills rows, else None."""
    return dataset.spec() if isinstance(dataset, Filler) and _matches_getitem(dataset, "fill") else None


def _matches_getitem(dataset: DatasetLike, method: str) -> bool:
    """Return whether ``method`` returns what ``dataset[index]`` does.

    It does not if a subclass of the class that defines it overrides ``__getitem__`` only, or if a proxy delegates it.
    """
    for cls in type(dataset).__mro__:
        if method in vars(cls):
            return "__getitems__" not in getattr(dataset, "__dict__", ())
        if "__getitem__" in vars(cls) or "__getitems__" in vars(cls):
            return False
    return True


def is_iterable(dataset: DatasetLike) -> bool:
    """Return whether ``dataset`` is a stream: penstock's, or a framework's that is imported."""
    return isinstance(dataset, (IterableDataset, *stream_types()))


def find_upright(dataset: DatasetLike) -> bool | None:
    """Return which picture the boxes of samples are of, as in :class:`penstock.Field`.

    It is None where no dataset within says it.

    Raises ArgumentError where two datasets within say different things.
    """
    if not isinstance(dataset, Wrapper):
        return dataset.upright if isinstance(dataset, Dataset) and hasattr(dataset, "upright") else None
    said = {find_upright(each) for each in dataset.wrapped_datasets()} - {None}
    if len(said) > 1:
        raise ArgumentError(
            "datasets that are mixed must have boxes of one picture: some are of the upright one, others of the stored "
            "one; pack the stores anew with one upright="
        )
    return next(iter(said), None)


def loads_many(dataset: DatasetLike) -> bool:
    """Return whether ``dataset``, or one inside of it, defines ``load_samples``."""
    if isinstance(dataset, Wrapper):
        return _matches_getitem(dataset, "iter_samples") and any(map(loads_many, dataset.wrapped_datasets()))
    return _has_load_samples(dataset)


def takes_many(dataset: DatasetLike) -> bool:
    """Return whether one call asks for several samples of a batch, so that they are all missing if one fails."""
    if isinstance(dataset, Wrapper) and _matches_getitem(dataset, "fetch_samples"):
        return any(map(takes_many, dataset.wrapped_datasets()))
    return _has_load_samples(dataset) or bool(getattr(dataset, "__getitems__", None))


def _has_load_samples(dataset: DatasetLike) -> bool:
    return (
        isinstance(dataset, Dataset) and hasattr(dataset, "load_samples") and _matches_getitem(dataset, "load_samples")
    )


def has_prefetch(dataset: DatasetLike) -> bool:
    """Return whether ``dataset``, or one inside of it, looks ahead."""
    if not isinstance(dataset, Dataset | Wrapper) or not _matches_getitem(dataset, "prefetch"):
        return False
    if isinstance(dataset, Wrapper):
        return any(map(has_prefetch, dataset.wrapped_datasets()))
    return bool(getattr(dataset, "prefetches", hasattr(dataset, "prefetch")))


def look_ahead(dataset: DatasetLike) -> int:
    """Return how many samples of ``dataset`` are to be announced before their batches are planned; 0 as a rule."""
    if not has_prefetch(dataset):
        return 0
    if isinstance(dataset, Wrapper):
        return max(map(look_ahead, dataset.wrapped_datasets()), default=0)
    return int(getattr(dataset, "look_ahead", 0))


def prefetch(dataset: DatasetLike, indices: Sequence[Index]) -> bool:
    """Have ``dataset`` look ahead to samples that are soon asked for, if it can. False if there was nothing to do."""
    return has_prefetch(dataset) and dataset.prefetch(indices) is not False


def fetch(
    dataset: DatasetLike,
    indices: Sequence[Index],
    keys: SampleKeys,
    watch: Watch | None = None,
    *,
    as_given: bool = False,
) -> Batch:
    """Samples ``indices`` of ``dataset`` for a batch, each built with its own key.

    Calls ``load_samples`` if the dataset has it, else torch's ``__getitems__``, else ``__getitem__`` for each. Inside
    ``__getitems__`` there is no current sample, so that ``penstock.rng()`` raises; if global generators are seeded for
    each sample, ``__getitems__`` is called for one sample at a time.

    Parameters
    ----------
    dataset : dataset
        Any map-style dataset.
    indices : sequence
        What the sampler drew.
    keys : SampleKeys
        One for each index.
    watch : Watch, optional
        Called before each call of the dataset's code, with the positions in ``indices`` that the call asks for.
    as_given : bool
        Whether to return what ``__getitems__`` returns unchanged, as torch's loader does. False: a list of one sample
        for each index.

    Raises
    ------
    Exception
        What the dataset raised, of the same type, with a note of the index. A ``StopIteration``, which would end the
        epoch silently, becomes a :class:`SampleError`.
    SampleError
        If the number of samples is not that of ``indices``.
    """
    if isinstance(dataset, Wrapper) and _matches_getitem(dataset, "fetch_samples"):
        samples = dataset.fetch_samples(_iterable(indices), keys, watch)
    elif _has_load_samples(dataset) or not getattr(dataset, "__getitems__", None):
        samples = list(iter_samples(dataset, _iterable(indices), keys, watch))
    elif seeds_globals():
        samples = _get_singly(dataset, indices, keys, watch)
    else:
        samples = _get_many(dataset, indices, watch)
    if as_given:
        return samples
    if len(samples) != len(indices):
        raise SampleError(
            f"__getitems__ and load_samples must return one sample for each index, but {type(dataset).__name__} "
            f"returned {len(samples)} for {len(indices)} indices",
            indices=_shown(indices),
        )
    return list(samples)


def _iterable(indices: Sequence[Index]) -> Sequence[Index]:
    if isinstance(indices, IndexBatch):
        indices.check()
    return indices


def fetch_one(dataset: DatasetLike, index: Index, keys: SampleKeys) -> Sample:
    """Return ``dataset[index]``, with the one key of ``keys``: for loaders without automatic batching."""
    return next(get_each(dataset, [index], keys))


def iter_samples(
    dataset: DatasetLike, indices: Iterable[Index], keys: SampleKeys, watch: Watch | None = None
) -> Iterator[Sample]:
    """Yield ``dataset[index]`` for each index, in this order, with its own key, each built when it is needed.

    A dataset that loads many samples at once gets all ``indices`` before the first sample is built.
    """
    if isinstance(dataset, Wrapper) and loads_many(dataset):
        return dataset.iter_samples(list(indices), keys, watch)
    if not _has_load_samples(dataset):
        return get_each(dataset, indices, keys, watch)
    if watch is None:
        return iter(dataset.load_samples(list(indices), keys))
    watch(0, len(keys))
    return _report_each(dataset.load_samples(list(indices), keys), len(keys), watch)


def _report_each(samples: Iterable[Sample], count: int, watch: Watch) -> Iterator[Sample]:
    """``samples``, which ``load_samples`` returned for ``count`` indices; the first one may read for all of them."""
    watch(0, count)
    for following, sample in enumerate(samples, 1):
        yield sample
        if following < count:
            watch(following)


def get_each(
    dataset: DatasetLike, indices: Iterable[Index], keys: SampleKeys, watch: Watch | None = None
) -> Iterator[Sample]:
    """Return ``dataset[index]`` for each index, with its own key; an error names the index."""
    for position, (index, drawn) in enumerate(zip(indices, keys.indices.tolist(), strict=True)):
        if watch is not None:
            watch(position)
        try:
            with sample_scope(keys.seed, keys.epoch, drawn):
                sample = dataset[index]
        except BaseException as error:  # noqa: BLE001  # raised again, with its location
            raise add_location(error, index=index)  # noqa: B904  # the same object, or one that is chained
        yield sample


def _get_singly(dataset: DatasetLike, indices: Sequence[Index], keys: SampleKeys, watch: Watch | None) -> list[Sample]:
    samples: list[Sample] = []
    for position, (index, drawn) in enumerate(zip(indices, keys.indices.tolist(), strict=True)):
        if watch is not None:
            watch(position)
        with sample_scope(keys.seed, keys.epoch, drawn):
            samples += _get_many(dataset, [index], None)
    return samples


def _get_many(dataset: DatasetLike, indices: Sequence[Index], watch: Watch | None) -> Batch:
    if watch is not None:
        watch(0, len(indices))
    try:
        return dataset.__getitems__(indices.given if isinstance(indices, IndexBatch) else list(indices))
    except BaseException as error:  # noqa: BLE001  # raised again, with its location
        raise add_location(error, indices=_shown(indices))  # noqa: B904  # the same object, or one that is chained


def _shown(indices: Sequence[Index]) -> list[Index] | str:
    return list(indices) if len(indices) <= 16 else f"{indices[0]}, ..., {indices[-1]} ({len(indices)} in all)"
