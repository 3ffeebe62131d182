"""What a dataset is, and the one place that asks it for samples.

Any object with ``__getitem__`` is a dataset for the loader; :class:`Dataset` adds the operators. A dataset that can
write samples straight into a batch's arrays says so by :class:`Filler`; one that reads many samples cheaper than
one by one defines ``load_samples``; one that can tell itself from others of its length, ``fingerprint``. Each sample is
built under its own key, and the index stands on errors. A subclass that overrides ``__getitem__`` alone has the last
word: it is asked sample by sample. This module starts no thread and keeps no state.

Two questions are asked, as torch's loader and datasets ask them::

    fetch          a batch:   __getitems__(indices), where the dataset has it; else as below
    iter_samples   samples:   dataset[index] for each, in the order of indices, each when it is wanted

Datasets over others (:class:`Wrapper`) pass on the question that they were asked. Code that draws from a global
generator depends on that order, so that reads may be grouped by ``load_samples``, but no sample is built out of turn.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, runtime_checkable

from penstock.errors import PenstockError, SampleError
from penstock.rng import sample_scope, seeds_globals

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.datasets.chain import ChainDataset
    from penstock.datasets.concat import ConcatDataset
    from penstock.sample import SampleKeys, Tree, Watch

__all__ = [
    "Dataset",
    "Filler",
    "IndexBatch",
    "IterableDataset",
    "Wrapper",
    "combined_fingerprint",
    "fetch",
    "fetch_one",
    "fingerprint_of",
    "get_each",
    "is_iterable",
    "iter_samples",
    "loads_many",
    "located",
    "place_of",
    "register_sum",
    "spec_of",
    "takes_many",
]

T_co = TypeVar("T_co", covariant=True)

_PLACE: Final = "_penstock_place"
"""Attribute of a foreign error that holds its place, for :func:`place_of`."""


class Dataset(Generic[T_co]):
    """Base of map-style datasets: a subclass defines ``__getitem__`` and, where it can, ``__len__``.

    A subclass may define ``load_samples(indices, keys)``, which the loader then calls for a whole chunk. It gives what
    ``__getitem__`` gives under the same keys, as a list, or as an iterator that builds each sample when it is asked for
    (a generator): code that draws from global generators then runs in the order of indices, also where several datasets
    are concatenated. The call, and the first sample of an iterator, may take the loader's ``stall_timeout`` for each of
    the indices; each further sample of an iterator, for itself.

    A subclass may define ``fingerprint() -> str``, another one for other samples: a loader of another dataset then
    refuses the state.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        joined: ConcatDataset[Any] = _sum_types["samples"]([self, other])
        return joined


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Base of datasets that are streams: a subclass defines ``__iter__``.

    With ``state_dict`` and ``load_state_dict`` (on itself or on its iterator) a resumed loader goes on at once;
    without, the stream is run forward to where it was.
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __add__(self, other: Dataset[Any]) -> ChainDataset[Any]:  # type: ignore[override]  # as torch's: streams chain
        joined: ChainDataset[Any] = _sum_types["streams"]([self, other])
        return joined


_sum_types: dict[str, Callable[[list[Any]], Any]] = {}
"""What ``+`` of datasets and of streams gives; see :func:`register_sum`."""


def register_sum(operands: str, join: Callable[[list[Any]], Any]) -> None:
    """Let ``+`` of "samples" (map-style datasets) or "streams" give ``join([left, right])``.

    Called by the modules of these classes, which import this one.
    """
    _sum_types[operands] = join


class IndexBatch(list[Any]):
    """The indices of a batch, with the object that a batch sampler gave for them, which is no list.

    ``__getitems__`` is called with that object, as by torch: an array, a tensor, a tuple. Of what cannot be iterated,
    there are no indices.
    """

    __slots__ = ("given",)

    def __init__(self, given: Any) -> None:
        try:
            indices = iter(given)
        except TypeError:
            indices = iter(())
        super().__init__(indices)
        self.given: Any = list(self) if isinstance(given, Iterator) else given

    def check(self) -> None:
        """Raise Python's own TypeError if what was given is no batch."""
        iter(self.given)


class Wrapper:
    """A dataset over other datasets, of this family or another, which asks them as torch's own wrappers do."""

    def wrapped_datasets(self) -> Iterable[Any]:
        """The datasets that it asks."""
        raise NotImplementedError(f"{type(self).__name__} must define wrapped_datasets")

    def fetch_samples(self, indices: Sequence[Any], keys: SampleKeys, watch: Watch | None) -> Any:
        """The samples of a batch: what torch's wrapper gives for ``__getitems__``, or else for each index."""
        raise NotImplementedError(f"{type(self).__name__} must define fetch_samples")

    def iter_samples(self, indices: Sequence[Any], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Any]:
        """What ``self[index]`` gives for each, in order; called where something inside loads many at once."""
        raise NotImplementedError(f"{type(self).__name__} must define iter_samples")


@runtime_checkable
class Filler(Protocol):
    """A dataset that writes samples into the rows of a batch, in place of returning them."""

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
        Thread-safe. ``keys.indices[j]`` is the index that the sampler drew for it: a wrapper translates ``indices`` and
        passes ``keys`` on.
        """
        ...


def spec_of(dataset: Any) -> Tree | None:
    """The spec of one sample if ``dataset`` fills rows, else None."""
    return dataset.spec() if isinstance(dataset, Filler) and _is_last_word(dataset, "fill") else None


def _is_last_word(dataset: Any, method: str) -> bool:
    """Whether ``method`` gives what ``dataset[index]`` does.

    Not where a subclass of who defines it redefines ``__getitem__`` alone, or a proxy finds it in what it wraps.
    """
    for cls in type(dataset).__mro__:
        if method in vars(cls):
            return "__getitems__" not in getattr(dataset, "__dict__", ())
        if "__getitem__" in vars(cls) or "__getitems__" in vars(cls):
            return False
    return True


def fingerprint_of(dataset: Any) -> str | None:
    """What tells ``dataset`` from others of its length, if it says so by a method ``fingerprint() -> str``."""
    fingerprint = getattr(dataset, "fingerprint", None)
    found = fingerprint() if callable(fingerprint) else None
    return found if isinstance(found, str) else None


def combined_fingerprint(datasets: Iterable[Any], *more: bytes) -> str | None:
    """One fingerprint of several datasets, in order, and of what else counts; None if there is nothing to tell."""
    parts = [fingerprint_of(dataset) for dataset in datasets]
    if not more and not any(parts):
        return None
    state = hashlib.blake2b(repr(parts).encode(), digest_size=16)
    for part in more:
        state.update(part)
    return state.hexdigest()


def is_iterable(dataset: Any) -> bool:
    """Whether ``dataset`` is a stream, ours or torch's (which is not imported to find out)."""
    torch_data = sys.modules.get("torch.utils.data")
    return isinstance(dataset, IterableDataset) or (
        torch_data is not None and isinstance(dataset, torch_data.IterableDataset)
    )


def loads_many(dataset: Any) -> bool:
    """Whether ``load_samples`` is called where ``dataset``, or one inside of it, is asked for samples."""
    if isinstance(dataset, Wrapper):
        return _is_last_word(dataset, "iter_samples") and any(map(loads_many, dataset.wrapped_datasets()))
    return _has_load_samples(dataset)


def takes_many(dataset: Any) -> bool:
    """Whether several samples of a batch are asked for at once; then one that fails takes the others with it."""
    if isinstance(dataset, Wrapper) and _is_last_word(dataset, "fetch_samples"):
        return any(map(takes_many, dataset.wrapped_datasets()))
    return _has_load_samples(dataset) or bool(getattr(dataset, "__getitems__", None))


def _has_load_samples(dataset: Any) -> bool:
    return isinstance(dataset, Dataset) and hasattr(dataset, "load_samples") and _is_last_word(dataset, "load_samples")


def fetch(
    dataset: Any,
    indices: Sequence[Any],
    keys: SampleKeys,
    watch: Watch | None = None,
    *,
    as_given: bool = False,
) -> Any:
    """Samples ``indices`` of ``dataset`` for a batch, each built under its own key.

    Uses ``load_samples`` if the dataset has it, else torch's ``__getitems__``, else ``__getitem__`` for each; inside
    ``__getitems__`` there is no current sample, so ``penstock.rng()`` refuses to guess one (where global generators are
    seeded for each sample, it is asked for one at a time).

    Parameters
    ----------
    dataset : dataset
        Any map-style dataset.
    indices : sequence
        What the sampler drew.
    keys : SampleKeys
        One for each index.
    watch : Watch, optional
        Called before each call of the dataset's code, with the places in ``indices`` of the samples that it asks for.
    as_given : bool
        Whether to return what ``__getitems__`` returns, whatever it is, as torch's loader does. False: a list, of one
        sample for each index.

    Raises
    ------
    Exception
        What the dataset raised, of its own type, with the index noted. A ``StopIteration`` (which would end the epoch
        silently) becomes a :class:`SampleError`.
    """
    if isinstance(dataset, Wrapper) and _is_last_word(dataset, "fetch_samples"):
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
            f"{type(dataset).__name__} was asked for {len(indices)} samples and gave {len(samples)}; __getitems__ and "
            "load_samples give one sample for each index",
            indices=_shown(indices),
        )
    return list(samples)


def _iterable(indices: Sequence[Any]) -> Sequence[Any]:
    if isinstance(indices, IndexBatch):
        indices.check()
    return indices


def fetch_one(dataset: Any, index: Any, keys: SampleKeys) -> Any:
    """``dataset[index]``, under the one key of ``keys``: how torch's loader asks without automatic batching."""
    return next(get_each(dataset, [index], keys))


def iter_samples(dataset: Any, indices: Iterable[Any], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Any]:
    """What ``dataset[index]`` gives for each index, in this order, under its own key, built when it is asked for.

    What loads many samples at once is told of all ``indices`` before the first sample is built.
    """
    if isinstance(dataset, Wrapper) and loads_many(dataset):
        return dataset.iter_samples(list(indices), keys, watch)
    if not _has_load_samples(dataset):
        return get_each(dataset, indices, keys, watch)
    if watch is None:
        return iter(dataset.load_samples(list(indices), keys))
    watch(0, len(keys))
    return _reported(dataset.load_samples(list(indices), keys), len(keys), watch)


def _reported(samples: Iterable[Any], count: int, watch: Watch) -> Iterator[Any]:
    """``samples``, what ``load_samples`` gave for ``count`` indices; the first one may read for all of them."""
    watch(0, count)
    for following, sample in enumerate(samples, 1):
        yield sample
        if following < count:
            watch(following)


def get_each(dataset: Any, indices: Iterable[Any], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Any]:
    """``dataset[index]`` for each index, under its own key; an error tells the index."""
    for place, (index, drawn) in enumerate(zip(indices, keys.indices.tolist(), strict=True)):
        if watch is not None:
            watch(place)
        try:
            with sample_scope(keys.seed, keys.epoch, drawn):
                sample = dataset[index]
        except BaseException as error:  # noqa: BLE001  # raised again, with its place
            raise located(error, index=index)  # noqa: B904  # the same object, or one that is chained
        yield sample


def _get_singly(dataset: Any, indices: Sequence[Any], keys: SampleKeys, watch: Watch | None) -> list[Any]:
    samples: list[Any] = []
    for place, (index, drawn) in enumerate(zip(indices, keys.indices.tolist(), strict=True)):
        if watch is not None:
            watch(place)
        with sample_scope(keys.seed, keys.epoch, drawn):
            samples += _get_many(dataset, [index], None)
    return samples


def _get_many(dataset: Any, indices: Sequence[Any], watch: Watch | None) -> Any:
    if watch is not None:
        watch(0, len(indices))
    try:
        return dataset.__getitems__(indices.given if isinstance(indices, IndexBatch) else list(indices))
    except BaseException as error:  # noqa: BLE001  # raised again, with its place
        raise located(error, indices=_shown(indices))  # noqa: B904  # the same object, or one that is chained


def _shown(indices: Sequence[Any]) -> list[Any] | str:
    return list(indices) if len(indices) <= 16 else f"{indices[0]}, ..., {indices[-1]} ({len(indices)} in all)"


def located(error: BaseException, **where: Any) -> BaseException:
    """``error`` with a place noted on it; ``StopIteration`` and its like as a :class:`SampleError`.

    The same object wherever possible, so that its type and attributes stay catchable.
    """
    if isinstance(error, PenstockError):
        return error.locate(**where)
    if isinstance(error, (StopIteration, StopAsyncIteration, GeneratorExit, SystemExit)):
        said = f"{type(error).__name__} was raised while a sample was built: {error}"
        wrapped = SampleError(said.removesuffix(": "), **where)
        wrapped.__cause__ = error
        return wrapped
    known = {name: value for name, value in where.items() if value is not None}
    if known:
        error.add_note(f"[{', '.join(f'{name}={value!r}' for name, value in known.items())}]")
        error.__dict__[_PLACE] = {**known, **error.__dict__.get(_PLACE, {})}
    return error


def place_of(error: BaseException) -> dict[str, Any]:
    """What :func:`located` noted on ``error``, inner knowledge before outer."""
    return error.where if isinstance(error, PenstockError) else error.__dict__.get(_PLACE, {})
