"""Prefetching over several epochs: next() and reset(), the endless iterator, and its states."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DistributedSampler, RandomSampler  # noqa: E402  # it needs torch

import penstock as ps  # noqa: E402  # as above
import penstock.torch as pt  # noqa: E402  # as above
from penstock.errors import ArgumentError  # noqa: E402  # as above
from penstock.torch.device.prefetching import Prefetcher, prefetch  # noqa: E402  # as above
from tests.effort import mark_slow  # noqa: E402  # as above
from tests.torch.device.devices import META, FakeStreams, Source, numbers, on_streams  # noqa: E402  # as above
from tests.torch.streams import Plain, Remembering  # noqa: E402  # as above

SAMPLES: Any = list(range(20))


class Events:
    """A loader that notes when it is iterated and drawn from; each epoch has ``counts[epoch]`` batches."""

    def __init__(self, counts: list[int]) -> None:
        self.counts, self.log, self.epochs = counts, [], 0  # type: ignore[var-annotated]  # a list of words

    def __iter__(self) -> Iterator[Any]:
        self.epochs += 1
        self.log.append(f"iter {self.epochs - 1}")
        return self._walk(self.epochs - 1)

    def _walk(self, epoch: int) -> Iterator[Any]:
        for number in range(self.counts[epoch] if epoch < len(self.counts) else 0):
            self.log.append(f"draw {epoch}.{number}")
            yield f"{epoch}.{number}"


class OtherSampler(RandomSampler):
    """A sampler that is told its epoch, and does not keep it."""

    def set_epoch(self, epoch: int) -> None:
        """As torch's."""


def as_list(samples: list[Any]) -> list[int]:
    """The samples' numbers, as a batch."""
    return [int(sample[0] if isinstance(sample, tuple) else sample) for sample in samples]


def on_fake(loader: Any, **options: Any) -> Prefetcher:
    """A prefetcher that copies ahead on a fake device."""
    return Prefetcher(loader, META, **{"depth": 3, "streams": FakeStreams(), **options})


# the form of a DataPrefetcher


def test_next_ends_each_epoch_with_none() -> None:
    """The loop of a DataPrefetcher gives each epoch's batches; the call after None begins the next epoch."""
    _, prefetcher = on_streams(Events([3, 0, 2]))
    epochs: list[list[Any]] = []
    for _ in range(3):
        epochs.append([])
        batch = prefetcher.next()
        while batch is not None:
            epochs[-1].append(batch)
            batch = prefetcher.next()

    assert epochs == [["0.0", "0.1", "0.2"], [], ["2.0", "2.1"]]


def test_reset_begins_an_epoch() -> None:
    """The epoch under way is closed, and the loader is iterated at once, so that its workers start."""
    source = Source(numbers(5))
    _, prefetcher = on_streams(source)
    prefetcher.next()
    drawn = source.drawn
    prefetcher.set_epoch(1)
    prefetcher.reset()
    state = prefetcher.state_dict()

    batch = prefetcher.next()

    assert (drawn, source.closed) == (1, 1)
    assert state == {"drawn": 0, "epoch": 1}
    assert batch is not None
    assert batch.shape == (1,)


def test_reset_after_the_end_skips_no_epoch() -> None:
    """BasicSR calls reset() before each epoch, also after next() has returned None."""
    loader = Events([1, 1])
    _, prefetcher = on_streams(loader)
    got = []
    for _ in range(2):
        prefetcher.reset()
        got.append([prefetcher.next(), prefetcher.next()])

    assert got == [["0.0", None], ["1.0", None]]


def test_next_and_a_loop_are_apart() -> None:
    """A for loop does not take the batches of next()."""
    prefetcher = prefetch(["a", "b", "c"], "cpu")
    first = prefetcher.next()

    assert list(prefetcher) == ["a", "b", "c"]
    assert [first, prefetcher.next(), prefetcher.next(), prefetcher.next()] == ["a", "b", "c", None]


def test_closing_and_loading_a_state_end_the_epoch_of_next() -> None:
    """close() closes the loader's iterator once; next() then continues where the loaded state says."""
    source = Source(numbers(9))
    _, prefetcher = on_streams(source)
    prefetcher.next()
    prefetcher.close()
    prefetcher.close()
    closed = source.closed
    prefetcher.load_state_dict({"drawn": 4, "epoch": 0})

    batch = prefetcher.next()

    assert closed == 1
    assert batch is not None
    assert batch.shape == (5,)


def test_none_as_a_batch_is_an_error_of_next() -> None:
    """It would end the loop of a script before the epoch's end."""
    prefetcher = prefetch([1, None, 3], "cpu")
    prefetcher.next()

    with pytest.raises(ArgumentError, match="the loader's batch is None"):
        prefetcher.next()
    assert prefetcher.next() == 3


def test_an_error_of_next_comes_in_its_turn() -> None:
    """The next call continues after it."""
    items = [torch.zeros(1), torch.zeros(2)]

    def transform(batch: Any) -> Any:
        if batch.shape == (1,):
            raise ValueError("first")
        return batch

    _, prefetcher = on_streams(items, transform=transform)

    with pytest.raises(ValueError, match="first"):
        prefetcher.next()
    second = prefetcher.next()
    assert second is not None
    assert second.shape == (2,)
    assert prefetcher.next() is None


# the endless iterator


@pytest.mark.parametrize("depth", range(1, 6))
@pytest.mark.parametrize("streams", [None, FakeStreams()])
def test_an_endless_iterator_gives_all_epochs_in_order(depth: int, streams: Any) -> None:
    """No batch is lost, repeated or moved, whatever the epochs' lengths; one empty epoch is passed over."""
    counts = [3, 1, 0, 7, 2]
    expected = [f"{epoch}.{number}" for epoch, count in enumerate(counts) for number in range(count)]
    prefetcher = Prefetcher(Events(counts), META, depth=depth, endless=True, streams=streams)

    got = [batch for _, batch in zip(expected, prefetcher, strict=False)]

    assert got == expected


@pytest.mark.parametrize("dataset", [SAMPLES, Plain(20)])
@pytest.mark.parametrize("workers", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_torchs_own_loader_goes_on_too(dataset: Any, workers: dict[str, Any]) -> None:
    """The batches are those of a loop over epochs."""
    torch.manual_seed(1)
    shuffle = None if dataset is not SAMPLES else True
    loader = torch.utils.data.DataLoader(dataset, 6, shuffle, collate_fn=as_list, **workers)
    expected = [batch for _ in range(3) for batch in loader]
    del loader
    torch.manual_seed(1)
    loader = torch.utils.data.DataLoader(dataset, 6, shuffle, collate_fn=as_list, **workers)

    got = [batch for _, batch in zip(expected, on_fake(loader, endless=True), strict=False)]

    assert len(expected) == 12
    assert got == expected


@pytest.mark.parametrize(
    ("depth", "during"),
    [
        (1, ["iter 1", "draw 1.0 draw 1.1", "draw 1.2"]),
        (2, ["iter 1", "draw 1.0", "draw 1.1 draw 1.2", "draw 1.3"]),
        (4, ["iter 1", "", "", "draw 1.0", "draw 1.1 draw 1.2", "draw 1.3 draw 1.4"]),
    ],
)
def test_the_next_epoch_begins_while_batches_are_ahead(depth: int, during: list[str]) -> None:
    """The loader is iterated before the last batches are returned; its first batch is drawn when one is left ahead."""
    loader = Events([20, 20])
    walk = iter(on_fake(loader, depth=depth, endless=True))
    while loader.log[-1] != "draw 0.19":
        next(walk)
    got = []
    for _ in during:
        seen = len(loader.log)
        next(walk)
        got.append(" ".join(loader.log[seen:]))

    assert got == during


def test_on_the_cpu_nothing_is_drawn_ahead_between_epochs() -> None:
    """Without copies, the next epoch begins when its first batch is requested."""
    loader = Events([1, 1])
    walk = iter(prefetch(loader, "cpu", endless=True))

    assert next(walk) == "0.0"
    assert loader.log == ["iter 0", "draw 0.0"]
    assert next(walk) == "1.0"


@pytest.mark.parametrize("streams", [None, FakeStreams()])
def test_a_loader_without_batches_is_an_error(streams: Any) -> None:
    """Two empty epochs in a row end in an error, and a further call does not iterate the loader again."""
    loader = Events([])
    walk = iter(Prefetcher(loader, META, endless=True, streams=streams))
    for _ in range(3):
        with pytest.raises(ArgumentError, match="two epochs in a row had none"):
            next(walk)

    assert loader.epochs == 2


@pytest.mark.parametrize("streams", [None, FakeStreams()])
def test_a_generator_is_named_in_the_error(streams: Any) -> None:
    """Its batches are returned first; it cannot be iterated again."""
    walk = iter(Prefetcher((n for n in range(4)), META, endless=True, streams=streams))

    assert [next(walk) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ArgumentError, match="generator can be iterated once only"):
        next(walk)


def test_an_epoch_that_cannot_begin_fails_in_its_turn() -> None:
    """The error of iter(loader) is raised after the last batches, and the next call tries again, for the same epoch."""

    class Loader(Events):
        sampler: Any = DistributedSampler(SAMPLES, 1, 0)

        def __iter__(self) -> Iterator[Any]:
            if len(self.log) == 4:
                self.log.append("failed")
                raise OSError("no memory")
            return super().__iter__()

    loader = Loader([3, 3])
    walk = iter(on_fake(loader, endless=True))
    got = [next(walk) for _ in range(3)]
    with pytest.raises(OSError, match="no memory"):
        next(walk)
    after = next(walk)

    assert got == ["0.0", "0.1", "0.2"]
    assert after == "1.0"
    assert loader.sampler.epoch == 1


@pytest.mark.parametrize(("taken", "epochs"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_break_closes_the_epoch_that_was_begun_last(taken: int, epochs: int) -> None:
    """close() also ends an epoch that has begun ahead; epochs that ended are not closed; no batch comes afterwards."""
    closed: list[int] = []

    class Walk:
        def __init__(self, epoch: int) -> None:
            self.epoch, self.left = epoch, 2

        def __iter__(self) -> Walk:
            return self

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            self.left -= 1
            return self.epoch

        def close(self) -> None:
            closed.append(self.epoch)

    class Loader:
        epochs = 0

        def __iter__(self) -> Walk:
            self.epochs += 1
            return Walk(self.epochs)

    loader = Loader()
    walk: Any = iter(on_fake(loader, depth=1, endless=True))
    for _ in range(taken):
        next(walk)
    walk.close()
    walk.close()

    assert loader.epochs == epochs
    assert closed == [epochs]
    assert list(walk) == []


def test_an_abandoned_iterator_frees_its_loader() -> None:
    """The loader's iterator dies with it, in any epoch."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Walk:
        def __init__(self) -> None:
            self.left = 3
            alive.add(self)

        def __next__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

    class Loader:
        def __iter__(self) -> Any:
            return Walk()

    Walk.__iter__ = lambda self: self  # type: ignore[attr-defined]  # an iterator
    walk = iter(on_fake(Loader(), endless=True))
    counts = []
    for _ in range(10):
        next(walk)
        gc.collect()
        counts.append(len(alive))
    del walk
    gc.collect()

    assert max(counts) == 1
    assert len(alive) == 0


# epochs that samplers are told


def test_samplers_that_do_not_count_are_given_the_next_epoch() -> None:
    """torch's DistributedSampler gives another order in each epoch, as with set_epoch() before each; once per epoch."""
    for module in (torch.utils.data, pt):
        sampler: Any = DistributedSampler(SAMPLES, 1, 0, seed=5)
        expected = []
        for epoch in range(2, 5):
            sampler.set_epoch(epoch)
            expected += list(module.DataLoader(SAMPLES, 5, sampler=sampler, collate_fn=as_list))
        sampler.set_epoch(2)
        prefetcher = on_fake(module.DataLoader(SAMPLES, 5, sampler=sampler, collate_fn=as_list), endless=True)

        walk = iter(prefetcher)
        got = [(next(walk), prefetcher.epoch) for _ in range(12)]

        assert got == list(zip(expected, [2] * 4 + [3] * 4 + [4] * 4, strict=True))


@pytest.mark.parametrize("overlaps", [False, True])
def test_penstocks_loader_counts_for_its_samplers(overlaps: bool) -> None:
    """The order is that of a loop over epochs, also with overlap_epochs."""

    def loader() -> Any:
        sampler = ps.RandomSampler(SAMPLES, seed=1)
        options: Any = {"num_workers": 1, "workers": "threads", "persistent_workers": True, "overlap_epochs": overlaps}
        return pt.DataLoader(SAMPLES, 5, sampler=sampler, collate_fn=as_list, **options)

    one, two = loader(), loader()
    expected = [batch for _ in range(3) for batch in one]
    prefetcher = on_fake(two, endless=True)
    walk: Any = iter(prefetcher)
    got = [(next(walk), prefetcher.epoch) for _ in range(12)]
    walk.close()
    one.close()
    two.close()

    assert [batch for batch, _ in got] == expected
    assert [epoch for _, epoch in got] == [0] * 4 + [1] * 4 + [2] * 4


def test_a_sampler_without_a_known_epoch_is_refused() -> None:
    """Its epochs would silently repeat one order; nothing is iterated."""
    loader = torch.utils.data.DataLoader(SAMPLES, 5, sampler=OtherSampler(SAMPLES))

    with pytest.raises(ArgumentError, match="OtherSampler has set_epoch and no integer attribute epoch"):
        iter(prefetch(loader, "cpu", endless=True))
    assert len(list(prefetch(loader, "cpu"))) == 4


def test_a_loader_is_told_its_epoch_unless_it_counts() -> None:
    """With set_epoch and epoch it is told; one that hides its epoch, as Accelerate's does, counts by itself."""

    class Counting(Events):
        def set_epoch(self, epoch: int) -> None:
            raise AssertionError("called for a loader that counts")

    source = Source(numbers(2))
    told = on_fake(source, endless=True)
    walk, own = iter(told), iter(on_fake(Counting([1, 1]), endless=True))
    got = [(next(walk).shape[0], told.epoch) for _ in range(6)]

    assert got == [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)]
    assert [next(own), next(own)] == ["0.0", "1.0"]


# states


LOADERS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: ps.DataLoader(SAMPLES, 5, shuffle=True, seed=3, collate_fn=as_list),
    "numpy threads": lambda: ps.DataLoader(
        SAMPLES, 5, shuffle=True, seed=3, collate_fn=as_list, num_workers=1, workers="threads", overlap_epochs=True
    ),
    "global generator": lambda: pt.DataLoader(SAMPLES, 5, shuffle=True, collate_fn=as_list),
    "processes": lambda: pt.DataLoader(SAMPLES, 5, shuffle=True, seed=3, collate_fn=as_list, num_workers=1),
    "persistent": lambda: pt.DataLoader(
        SAMPLES, 5, shuffle=True, collate_fn=as_list, num_workers=1, persistent_workers=True
    ),
    "threads": lambda: pt.DataLoader(SAMPLES, 5, shuffle=True, collate_fn=as_list, num_workers=1, workers="threads"),
    "stream": lambda: pt.DataLoader(Plain(17), 5, collate_fn=as_list),
    "stream with a state": lambda: pt.DataLoader(Remembering(17), 5, collate_fn=as_list, num_workers=1),
    "ranks": lambda: pt.DataLoader(SAMPLES, 5, sampler=DistributedSampler(SAMPLES, 1, 0), collate_fn=as_list),
}


@pytest.mark.parametrize("name", mark_slow(LOADERS, [name for name in LOADERS if name != "processes"]))
def test_a_state_is_exact_at_each_batch_of_each_epoch(name: str) -> None:
    """Also at an epoch's last batches, when the next epoch has begun: a run that resumes gets exactly what follows."""
    torch.manual_seed(1)
    prefetcher = on_fake(LOADERS[name](), endless=True)
    walk: Any = iter(prefetcher)
    got, states = [], []
    for _ in range(10):
        got.append(next(walk))
        states.append((copy.deepcopy(prefetcher.state_dict()), prefetcher.epoch))
    walk.close()

    for number, (state, epoch) in enumerate(states[2:-1], start=3):
        torch.manual_seed(2)
        loader = LOADERS[name]()
        if name == "ranks":
            loader.set_epoch(epoch)  # torch's sampler is not in the state
        resumed = on_fake(loader, endless=True)
        resumed.load_state_dict(state)
        again: Any = iter(resumed)
        rest = list(itertools.islice(again, 10 - number))
        again.close()
        assert (number, rest) == (number, got[number:])


def test_setting_the_epoch_does_not_count_what_is_ahead() -> None:
    """The state of torch's loader is that of the epoch under way until iter(); also then, of what was returned."""
    prefetcher = on_fake(pt.DataLoader(SAMPLES, 2, shuffle=True, seed=1, collate_fn=as_list))
    walk = iter(prefetcher)
    next(walk), next(walk)

    prefetcher.set_epoch(3)

    assert prefetcher.state_dict()["_num_yielded"] == 2
    assert prefetcher.loader.state_dict()["_num_yielded"] == 3


# what starts nothing


def test_looking_at_an_endless_prefetcher_starts_nothing() -> None:
    """repr(), len(), epoch, state_dict() and pickling do not iterate the loader, and have no surprising value."""
    loader = Events([3])
    prefetcher = prefetch(loader, "cpu", endless=True)

    text = repr(prefetcher)
    with pytest.raises(TypeError, match="an endless prefetcher has no length"):
        len(prefetcher)
    with pytest.raises(NotImplementedError, match="pickle its state_dict"):
        pickle.dumps(prefetcher)
    with pytest.raises(AttributeError, match="state_dict"):
        prefetcher.state_dict()

    assert text == f"Prefetcher({Events.__module__}.Events, device='cpu', depth=2, endless=True)"
    assert prefetcher.epoch is None
    assert loader.log == []
