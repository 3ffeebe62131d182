"""Ablation: a loader whose stage costs nothing, because what it gives was kept. What that brings is what it costs.

::

    the loader's first batch     its samples are made once; what each call of the stage gives is kept, call by call
    any batch after that         the same samples, whatever is asked for; the stage's n-th call gives what was kept
                                 read, decode    calls of the functions of stage_names.STAGE_OF_FUNCTION
                                 sample          all of ``dataset[index]``
                                 collate         the first batch is given again
                                 transport       batches are built, and a number is sent in their place

Names of functions are replaced in all modules of the process that builds (:mod:`.kept_calls`), so this is for a trial's
child only.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from penstock.doctor.trials.kept_calls import Calls, SampleCalls, replace_functions

if TYPE_CHECKING:
    from penstock.doctor.watching.loaders.loader_settings import WatchedLoader

    Function = Callable[..., object]

__all__ = ["GivenStage", "NotApplicableError", "give_back"]

GivenStage = Literal["sample", "read", "decode", "collate", "transport"]

_UNBATCHED: Final = 4
"""Samples that are kept where the dataset makes batches itself."""
_END: Final = object()


class NotApplicableError(Exception):
    """A change means nothing for this loader."""


def give_back(fields: dict[str, object], loader: WatchedLoader, stage: GivenStage) -> None:
    """Set the attributes of a copy of ``loader`` so that ``stage`` costs nothing.

    Raises
    ------
    NotApplicableError
        If the loader has no such stage, or samples do not pass it one by one.
    """
    if stage == "collate":
        fields["collate_fn"] = _KeptBatch(loader.collate_fn)
    elif stage == "transport":
        if not loader.num_workers:
            raise NotApplicableError("batches are built where they are used")
        fields["collate_fn"] = _UnsentBatch(loader.collate_fn)
    else:
        fields["dataset"] = _make_dataset(loader, stage)


def _make_dataset(loader: WatchedLoader, stage: GivenStage) -> _KeptSamples | _KeptStream:
    dataset = loader.dataset
    if hasattr(dataset, "fill") or hasattr(dataset, "load_samples"):
        raise NotApplicableError("the dataset fills batches itself")
    order, batches = getattr(loader, "_order", None), getattr(loader, "batch_sampler", None)
    if order.is_stream if order is not None else getattr(loader, "_dataset_kind", 0):
        return _KeptStream(dataset, stage, getattr(loader, "batch_size", None) or _UNBATCHED)
    if batches is None:
        indices = list(islice(getattr(loader, "sampler", ()), _UNBATCHED))
        kept = _KeptSamples(dataset, stage, indices)
    elif hasattr(dataset, "__getitems__"):
        kept = _KeptBatches(dataset, stage, [next(iter(batches))])
    else:
        kept = _KeptSamples(dataset, stage, list(next(iter(batches))))
    kept.fill()
    return kept


class _Dataset(Protocol):
    """What a loader may ask a user's dataset for."""

    def __getitem__(self, index: object) -> object: ...

    def __getitems__(self, indices: object) -> object: ...

    def __iter__(self) -> Iterator[object]: ...

    def __len__(self) -> int: ...


class _Kept:
    """A dataset that takes the place of another, whose attributes it has."""

    def __init__(self, dataset: object, stage: GivenStage) -> None:
        self._dataset, self._stage = cast("_Dataset", dataset), stage

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):  # pickle asks before there is a dataset
            raise AttributeError(name)
        return cast("object", getattr(self._dataset, name))

    def _check_known(self, calls: Iterable[Calls]) -> None:
        if self._stage != "sample" and not any(calls):
            raise NotApplicableError(f"no call is known that belongs to the stage {self._stage}")


class _KeptSamples(_Kept):
    """Few samples, in turn, for all indices. A worker has a copy that was filled before it began."""

    def __init__(self, dataset: object, stage: GivenStage, indices: list[object]) -> None:
        super().__init__(dataset, stage)
        self._indices, self._next = indices, 0
        self._samples: list[object] = []
        self._calls: list[Calls] = []

    def fill(self) -> None:
        """Make each sample once; what a dataset opens meanwhile is its copy's, as workers may not share it."""
        own = self._dataset
        replace_functions(self._stage, own)
        self._dataset, self._calls = copy.copy(own), [Calls() for _ in self._indices]
        self._samples = [self._make(number) for number in range(len(self._indices))]
        self._dataset = own
        self._check_known(self._calls)

    def _make(self, number: int) -> object:
        with SampleCalls(self._calls[number]):
            return self._ask(self._indices[number])

    def _ask(self, index: object) -> object:
        return self._dataset[index]

    def _take(self) -> object:
        if not self._samples:  # in a process that was not forked
            self.fill()
        number = self._next
        self._next = (number + 1) % len(self._indices)
        return self._samples[number] if self._stage == "sample" else self._make(number)

    def __getstate__(self) -> Mapping[str, object]:
        return {**vars(self), "_samples": [], "_calls": []}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: object) -> object:
        return self._take()


class _KeptBatches(_KeptSamples):
    """The same for a dataset that is asked for all samples of a batch at once."""

    def _ask(self, index: object) -> object:
        return self._dataset.__getitems__(index)

    def __getitems__(self, indices: Sequence[object]) -> object:
        samples = self._take()
        return samples[: len(indices)] if isinstance(samples, list) else samples


class _KeptStream(_Kept):
    """The first samples of a stream, again and again: from memory, or from a stream that begins anew."""

    def __init__(self, dataset: object, stage: GivenStage, count: int) -> None:
        super().__init__(dataset, stage)
        self._count = count

    def __iter__(self) -> Iterator[object]:
        if self._stage == "sample":
            yield from cycle(islice(iter(self._dataset), self._count))
            return
        replace_functions(self._stage, self._dataset)
        calls = [Calls() for _ in range(self._count)]
        while True:
            with SampleCalls(calls[0]):  # a generator begins with its first sample
                samples = iter(self._dataset)
            for each in calls:
                with SampleCalls(each):
                    sample = next(samples, _END)
                if sample is _END:
                    break
                yield sample
            self._check_known(calls)


class _KeptBatch:
    """A ``collate_fn`` that gives its first batch again."""

    def __init__(self, collate: Function) -> None:
        self._collate, self._batches = collate, list[object]()

    def __call__(self, samples: object) -> object:
        if not self._batches:
            self._batches.append(self._collate(samples))
        return self._batches[0]


class _UnsentBatch:
    """A ``collate_fn`` that builds a batch and gives a number."""

    def __init__(self, collate: Function) -> None:
        self._collate = collate

    def __call__(self, samples: object) -> int:
        self._collate(samples)
        return 0
