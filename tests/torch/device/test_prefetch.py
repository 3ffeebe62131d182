"""Prefetching to a device: the order of streams, the lifetime of memory, and resuming."""

from __future__ import annotations

import gc
import pickle
import traceback
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import penstock as ps  # noqa: E402  # it needs torch
import penstock.torch as pt  # noqa: E402  # as above
from penstock.errors import ArgumentError  # noqa: E402  # as above
from penstock.loader.position import Position  # noqa: E402  # as above
from penstock.torch.device import copying  # noqa: E402  # as above
from penstock.torch.device.copying import find_streams  # noqa: E402  # as above
from penstock.torch.device.prefetching import Prefetcher, prefetch  # noqa: E402  # as above
from penstock.torch.loader import saving, state  # noqa: E402  # as above
from penstock.workers.slots import SlotPool  # noqa: E402  # as above
from tests.torch.device.devices import (  # noqa: E402  # as above
    META,
    FakeEvent,
    FakeStream,
    FakeStreams,
    Source,
    needs_cuda,
    numbers,
    on_streams,
)


class Failing:
    """A loader whose iterator continues after errors."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Any:
        return FailingIterator(iter(self.items))


class FailingIterator:
    """An iterator that raises the errors among its items."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        item = next(self._items)
        if isinstance(item, Exception):
            raise item
        return item


class Watched:
    """An object that records on which stream it is moved."""

    def __init__(self, streams: FakeStreams) -> None:
        self._streams = streams

    def to(self, device: Any) -> str:
        """The name of the active stream."""
        assert device == META
        return self._streams.active.name


# order of streams


def test_copy_and_transform_run_on_the_side_stream() -> None:
    """On the training step's stream only the wait is queued."""
    streams = FakeStreams()
    seen = []

    def transform(batch: Any) -> Any:
        seen.append(streams.active.name)
        return batch

    got = list(Prefetcher([[Watched(streams)]] * 3, META, transform, streams=streams))

    assert got == [["side"]] * 3
    assert seen == ["side"] * 3
    assert streams.active is streams.main


def test_a_batch_is_handed_over_behind_its_event() -> None:
    """The event is recorded after the copy, and the current stream waits for this event."""
    streams, walk = on_streams(numbers(4))
    handed = []
    for batch in walk:
        position = len(streams.log)
        number = batch.shape[0]
        assert streams.log.index(("side", "records event", number)) < position
        handed.append(streams.log[position - 2 :])
        streams.main.name = f"stream of step {number}"  # the next batch is asked for on another one

    names = ["main", "stream of step 1", "stream of step 2", "stream of step 3"]
    assert handed == [[(name, "waits for event", n), (name, "records", (n,))] for n, name in enumerate(names, start=1)]


def test_every_tensor_of_a_batch_is_recorded_where_it_is_used() -> None:
    """In any structure, also after the transform, so that its memory is not reused during the step."""

    class Pair(NamedTuple):
        x: Any
        y: Any

    @dataclass
    class Detection:
        boxes: Any
        name: str

    class Custom:
        def __init__(self, x: Any) -> None:
            self.x = x

        def to(self, device: Any, non_blocking: bool) -> Custom:
            return Custom(self.x.to(device))

    batch = [
        torch.zeros(1),
        {"a": (torch.zeros(2), "text"), "b": Pair(torch.zeros(3), 5)},
        Detection([torch.zeros(4)], "d"),
        Custom(torch.zeros(5)),
    ]
    streams, walk = on_streams([batch], transform=lambda b: [*b, torch.zeros(6, device=META)])

    (got,) = walk

    recorded = sorted(entry[2] for entry in streams.log if entry[:2] == ("main", "records"))
    assert recorded == [(n,) for n in range(1, 7)]
    assert got[1]["a"][1] == "text"


def test_the_side_stream_waits_once_for_what_was_queued_before() -> None:
    """A transform's parameters may be queued before; waiting for every batch would prevent overlap."""
    streams, walk = on_streams(numbers(5))

    list(walk)

    assert streams.log[0] == ("side", "waits for stream", "main")
    assert [entry[1] for entry in streams.log].count("waits for stream") == 1


def test_a_batch_that_is_on_the_device_is_waited_for() -> None:
    """Work of the loader on the device ends before the side stream reads it, and its memory is kept."""
    streams, walk = on_streams([[torch.zeros(7, device=META), torch.zeros(2)]])

    list(walk)

    assert streams.log[1:4] == [
        ("side", "waits for stream", "main"),
        ("side", "records event", 1),
        ("side", "records", (7,)),
    ]


def test_workers_start_before_the_device_does() -> None:
    """The loader is iterated first, so workers are forked before this process uses the device."""
    order = []

    class Loader:
        def __iter__(self) -> Iterator[Any]:
            order.append("loader")
            return iter([])

    streams, prefetcher = on_streams(Loader())
    side = streams.side()

    def started() -> FakeStream:
        order.append("stream")
        return side

    streams.side = started  # type: ignore[method-assign]  # a fake's fake

    list(prefetcher)

    assert order == ["loader", "stream"]


# host memory


class Host:
    """Batches in the slots of one pool, and the tensors that are alive."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()

    def __iter__(self) -> Iterator[Any]:
        for n in range(self.count):
            tensor = torch.zeros(n + 1)
            self.alive.add(tensor)
            yield [tensor]
            del tensor

    def shapes(self) -> list[int]:
        """The sizes of the tensors that are alive."""
        return sorted(tensor.numel() for tensor in self.alive)


def test_host_memory_is_kept_until_its_copy_is_done() -> None:
    """A slot that is refilled during the copy would send pixels of the next batch."""
    host = Host(5)
    streams, prefetcher = on_streams(host, depth=1)
    walk = iter(prefetcher)
    for _ in range(3):
        next(walk)
    all_kept = host.shapes()
    streams.done = 2

    next(walk)

    assert all_kept == [1, 2, 3, 4]
    assert host.shapes() == [3, 4, 5]


def test_a_type_that_moves_in_place_keeps_its_host_memory_too() -> None:
    """Its ``to`` drops the host tensors while the copy is only queued."""

    class InPlace:
        def __init__(self, x: Any) -> None:
            self.x = x

        def to(self, device: Any) -> InPlace:
            self.x = self.x.to(device)
            return self

    tensor = torch.zeros(1)
    alive = weakref.ref(tensor)
    streams, prefetcher = on_streams(iter([InPlace(tensor), None]), depth=1)
    del tensor
    walk = iter(prefetcher)
    moved = next(walk)
    kept = alive() is not None
    streams.done = 9
    next(walk)

    assert moved.x.device == META
    assert kept
    assert alive() is None


def test_a_type_that_shows_no_tensors_is_kept_whole() -> None:
    """The object itself is kept if its tensors cannot be found."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Opaque:
        def __init__(self) -> None:
            alive.add(self)

        def to(self, device: Any) -> str:
            return "moved"

    streams, prefetcher = on_streams((Opaque() for _ in range(3)), depth=1)
    walk = iter(prefetcher)
    next(walk)
    kept = len(alive)
    streams.done = 9
    list(walk)

    assert kept == 1
    assert len(alive) == 0


def test_an_iterator_that_ended_holds_no_memory() -> None:
    """It holds no memory even if it is kept."""
    host = Host(3)
    streams, prefetcher = on_streams(host)
    walk = iter(prefetcher)
    count = len(list(walk))

    assert (count, streams.done) == (3, 3)
    assert host.shapes() == []
    assert list(walk) == []


def test_iterations_use_a_stream_again_but_not_at_once() -> None:
    """torch's allocator keeps the memory of each stream: with a new one an epoch, 32 streams' batches would be kept."""
    made: list[FakeStream] = []

    class Streams(FakeStreams):
        def side(self) -> FakeStream:
            made.append(super().side())
            return made[-1]

    streams = Streams()
    first, second = (Prefetcher(numbers(4), META, streams=streams) for _ in range(2))
    for _ in range(3):
        list(first)
        walk = iter(second)
        next(walk)
        del walk  # after a break
    alone = len(made)
    walks = [iter(first), iter(second)]
    for _ in zip(*walks, strict=True):
        pass
    ended = [*walks[0], *walks[1]]  # a stream is given back once
    walks = [iter(first), iter(second), iter(first)]

    assert (alone, ended, len(made)) == (1, [], 3)
    assert len({id(walk._copier._side) for walk in walks}) == 3  # type: ignore[attr-defined]  # of the iterator's class


def test_prefetchers_share_the_streams_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a script makes a prefetcher for each epoch, and names the current device without its number."""
    module = SimpleNamespace(Stream=object, stream=None, current_stream=None, current_device=lambda: 1)
    monkeypatch.setattr(torch, "get_device_module", lambda _kind: module)
    copying._share_streams.cache_clear()
    current, first, second = (find_streams(torch.device(name)) for name in ("xpu", "xpu:0", "xpu:1"))
    copying._share_streams.cache_clear()

    assert current is second
    assert current is not first


def test_slots_are_given_back_on_the_side_stream() -> None:
    """On the side stream, a slot's fence waits for copies only; on the step's stream it would wait for the step."""
    streams = FakeStreams()
    given_back = []

    class Lock:
        def __call__(self, address: int, nbytes: int) -> Any:
            return lambda: None

        def fence(self) -> Any:
            given_back.append(streams.active.name)
            return lambda: True

    pool = SlotPool(page_lock=Lock())

    def batches() -> Iterator[Any]:
        for _ in range(5):
            yield [torch.from_numpy(pool.take(64).bytes())]

    for _ in Prefetcher(batches(), META, streams=streams):
        streams.done = len(streams.events)

    assert given_back == ["side"] * 5


def test_a_break_waits_for_copies_before_memory_goes() -> None:
    """Pending copies end before their host memory is released, and the loader's iterator is closed."""
    host = Host(9)
    streams, prefetcher = on_streams(host, depth=2)
    at_synchronize = []
    synchronize = FakeEvent.synchronize

    class Event(FakeEvent):
        def synchronize(self) -> None:
            at_synchronize.append((self.number, host.shapes()))
            synchronize(self)

    streams.side = lambda: side  # type: ignore[method-assign]  # a fake's fake
    side = FakeStream(streams, "side")
    side.record_event = lambda: Event(streams)  # type: ignore[method-assign]  # as above
    for number, _ in enumerate(prefetcher):
        if number == 2:
            break
    gc.collect()

    assert at_synchronize == [(n, list(range(n, 6))) for n in range(1, 6)]
    assert host.shapes() == []


def test_closing_ends_the_loaders_iterator() -> None:
    """close() is idempotent, and closes the loader's iterator."""
    source = Source(numbers(5))
    inner = iter(source)
    _, prefetcher = on_streams(inner)
    walk = iter(prefetcher)
    next(walk)

    walk.close()  # type: ignore[attr-defined]  # an iterator with a close, as the loader's
    walk.close()  # type: ignore[attr-defined]  # as above

    assert source.closed == 1
    assert list(walk) == []


def test_a_failed_transform_leaves_no_copy_reading() -> None:
    """The copy of the batch ends before its memory is released with the error."""
    streams, walk = on_streams(numbers(1), transform=lambda batch: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        list(walk)

    assert ("synchronize", "side") in streams.log


# what is drawn when


@pytest.mark.parametrize(
    ("depth", "drawn"), [(1, [1, 3, 4, 5, 6, 7, 8]), (2, [1, 3, 5, 6, 7, 8]), (4, [1, 3, 5, 7, 8])]
)
def test_the_first_batch_waits_for_no_other(depth: int, drawn: list[int]) -> None:
    """Then each call draws one more batch, until ``depth`` batches are ahead."""
    source = Source(numbers(8))
    _, prefetcher = on_streams(source, depth=depth)
    got = []
    walk = iter(prefetcher)
    for _ in drawn:
        next(walk)
        got.append(source.drawn)

    assert got == drawn


def test_batches_come_in_order_and_all() -> None:
    """Every depth gives the loader's batches."""
    for depth in range(1, 7):
        _, walk = on_streams(numbers(5), depth=depth)
        assert [tuple(batch.shape) for batch in walk] == [(n,) for n in range(1, 6)]


def test_errors_come_in_their_turn() -> None:
    """Batches before an error are returned first, and those after it afterwards, as with the loader."""
    items: list[Any] = [torch.zeros(1), torch.zeros(2), ValueError("third"), torch.zeros(4), KeyError("fifth")]
    _, prefetcher = on_streams(Failing(items), depth=3)
    walk, got = iter(prefetcher), []
    while True:
        try:
            got.append(next(walk).shape[0])
        except StopIteration:
            break
        except (ValueError, KeyError) as error:
            got.append(error.args[0])

    assert got == [1, 2, "third", 4, "fifth"]


def test_nothing_is_drawn_behind_an_error_before_it_is_raised() -> None:
    """Most programs end at the error, so later batches would be drawn for nothing."""
    items = iter([torch.zeros(1), torch.zeros(2), ValueError("third"), torch.zeros(4)])
    _, prefetcher = on_streams(FailingIterator(items), depth=3)
    walk = iter(prefetcher)
    next(walk)
    next(walk)
    with pytest.raises(ValueError, match="third"):
        next(walk)

    assert next(items).shape == (4,)


def test_a_kept_error_keeps_no_iterator() -> None:
    """A notebook keeps the last traceback, which must not keep the loader's workers alive."""
    _, prefetcher = on_streams(Failing([torch.zeros(1), ValueError("second")]))
    walk = iter(prefetcher)
    next(walk)
    with pytest.raises(ValueError, match="second") as caught:
        next(walk)
    alive = weakref.ref(walk)
    shown = "".join(traceback.format_exception(caught.value))
    del walk

    assert alive() is None
    assert "raise item" in shown


# on a device without streams


def test_on_the_cpu_batches_stay_what_they_are() -> None:
    """Batches are the same objects, without copies or prefetching; the transform is applied."""
    batches = [[torch.ones(2), "a"], {"b": 1}]
    source = Source(batches)
    walk = iter(prefetch(source, "cpu"))

    first = next(walk)
    drawn = source.drawn

    assert first is batches[0]
    assert drawn == 1
    assert next(walk) is batches[1]
    assert list(prefetch([1, 2], "cpu", transform=lambda x: x * 10)) == [10, 20]


def test_a_device_without_streams_gets_a_plain_copy() -> None:
    """A batch is copied when it is requested."""
    source = Source(numbers(3))
    walk = iter(prefetch(source, "meta"))
    first = next(walk)

    assert first.device == META
    assert source.drawn == 1


# states


@pytest.mark.parametrize("module", [ps, pt])
@pytest.mark.parametrize("streams", [None, FakeStreams()])
@pytest.mark.parametrize("taken", range(8))
def test_a_state_counts_what_was_handed_over(taken: int, streams: Any, module: Any) -> None:
    """After each batch, before the first and at the end, the loader continues with the next batch."""

    def loader() -> Any:
        kind = {"collate_fn": lambda samples: [np.array(samples)], "num_workers": 1, "workers": "threads"}
        return module.DataLoader(list(range(20)), 3, shuffle=True, seed=3, **kind)

    def values(batches: Any) -> list[Any]:
        return [batch[0].tolist() for batch in batches]

    one = loader()
    reference = values(one) + values(one)
    prefetcher = Prefetcher(loader(), torch.device("cpu"), depth=3, streams=streams)
    walk = iter(prefetcher)
    got = values(next(walk) for _ in range(min(taken, 7)))
    if taken == 7:
        next(walk, None)
        assert prefetcher.state_dict() == prefetcher.loader.state_dict()
    state = prefetcher.state_dict()
    resumed = Prefetcher(loader(), torch.device("cpu"))
    resumed.load_state_dict(state)
    got += values(resumed)
    if taken != 7:
        got += values(resumed)

    assert got == reference


def test_a_state_is_written_down_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefetching records the loader's position, and computes no state for each batch."""
    written: list[int] = []
    write = state.dump

    def counted(live: Position, *others: Any) -> dict[str, Any]:
        written.append(live.batches)
        return write(live, *others)

    monkeypatch.setattr(saving, "dump", counted)
    prefetched = Prefetcher(pt.DataLoader(list(range(20)), 3), META, depth=3, streams=FakeStreams())
    walk = iter(prefetched)
    next(walk), next(walk)

    assert written == []
    assert prefetched.state_dict()["_num_yielded"] == 2
    assert written == [2]


class Counting(pt.DataLoader[Any]):
    """A loader with its own state."""

    def state_dict(self) -> dict[str, Any]:
        """The base's state and one more entry."""
        return {**super().state_dict(), "mine": True}


def test_a_subclass_has_the_last_word_on_its_state() -> None:
    """Its own method is called."""
    prefetched = Prefetcher(Counting(list(range(20)), 3), META, depth=3, streams=FakeStreams())

    next(iter(prefetched))

    assert prefetched.state_dict()["mine"]


def test_an_older_iterator_does_not_speak_for_a_newer() -> None:
    """The state is that of the newest iterator, as with a loader."""
    source = Source(numbers(9))
    _, prefetcher = on_streams(source)
    old = iter(prefetcher)
    next(old)
    source.drawn = 0
    new = iter(prefetcher)
    next(new)
    source.drawn = 5
    next(old)

    assert prefetcher.state_dict()["drawn"] == 1


def test_setting_epoch_or_state_forgets_the_position() -> None:
    """The state is then that of the loader."""
    source = Source(numbers(9))
    _, prefetcher = on_streams(source)
    walk = iter(prefetcher)
    next(walk)
    prefetcher.set_epoch(4)
    fresh = prefetcher.state_dict()
    next(iter(prefetcher))
    prefetcher.load_state_dict({"drawn": 7, "epoch": 2})

    assert fresh == {"drawn": 0, "epoch": 4}
    assert prefetcher.state_dict() == {"drawn": 7, "epoch": 2}


def test_a_state_is_the_users_own() -> None:
    """Changing the returned state has no effect on the prefetcher."""
    _, prefetcher = on_streams(Source(numbers(3)))
    walk = iter(prefetcher)
    next(walk)
    prefetcher.state_dict()["drawn"] = 99

    assert prefetcher.state_dict()["drawn"] == 1
    assert next(walk).shape == (2,)


# the rest


def test_a_prefetcher_speaks_for_its_loader() -> None:
    """len() and stats() are the loader's; without them in the loader, they raise."""
    prefetcher = prefetch(Source(numbers(3)), "cpu")

    assert len(prefetcher) == 3
    assert prefetcher.stats() == "stats"
    assert [list(prefetch(range(3), "cpu")), list(prefetch(range(3), "cpu"))] == [[0, 1, 2]] * 2
    with pytest.raises(AttributeError, match="state_dict"):
        prefetch([1], "cpu").state_dict()


@pytest.mark.parametrize("depth", [0, -1, 1.5, True, "2", None])
def test_depth_is_a_positive_number(depth: Any) -> None:
    """Other values are errors."""
    with pytest.raises(ArgumentError, match="depth"):
        prefetch([], "cpu", depth=depth)


def test_it_is_not_pickled() -> None:
    """A pickled loader would be at the drawn batch, not at the returned one."""
    with pytest.raises(NotImplementedError, match="pickle its state_dict"):
        pickle.dumps(prefetch([1], "cpu"))


def test_mps_and_the_cpu_have_no_streams_worth_while() -> None:
    """torch's streams of the CPU do nothing, and MPS has one queue."""
    for kind in ("cpu", "mps", "meta"):
        assert find_streams(torch.device(kind)) is None


# on a device


def host_batches(count: int, size: int) -> Iterator[Any]:
    """Pinned, nested batches, each deleted when it is drawn."""
    for n in range(count):
        yield {"x": torch.full((size,), n, dtype=torch.uint8).pin_memory(), "y": [torch.full((3,), n), "text"]}


@needs_cuda
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_batches_arrive_whole_under_a_slow_step(depth: int) -> None:
    """Queued steps read their own batch, although memory is released and reused all the time."""
    slow = torch.randn(2048, 2048, device="cuda")
    sums = []
    size = 1 << 22
    for batch in prefetch(host_batches(60, size), "cuda", transform=lambda b: {**b, "x": b["x"].float()}, depth=depth):
        for _ in range(5):
            slow = (slow @ slow).clamp(-1, 1)
        sums.append((batch["x"].mean(), batch["x"].amax(), batch["y"][0].sum()))
        del batch

    assert [(round(a.item()), int(b), int(c)) for a, b, c in sums] == [(n, n, 3 * n) for n in range(60)]


@needs_cuda
def test_slots_are_not_refilled_under_a_copy() -> None:
    """With page-locked slots, on a stream that is not the default one."""
    from penstock.torch.device.pinning import create_slot_lock

    pool = SlotPool(page_lock=create_slot_lock())

    def batches() -> Iterator[Any]:
        for n in range(60):
            array = pool.take(1 << 23).bytes()
            array[:] = n
            yield torch.from_numpy(array)
            del array

    got = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for batch in prefetch(batches(), "cuda"):
            got.append((batch.amin(), batch.amax()))
            del batch

    assert [(int(a), int(b)) for a, b in got] == [(n, n) for n in range(60)]
    assert pool.allocated < 30


@needs_cuda
def test_a_transform_may_use_what_was_just_made() -> None:
    """The side stream waits for parameters that are queued before the iteration, behind slow kernels."""
    slow = torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        slow = (slow @ slow).clamp(-1, 1)
    parameter = slow.sum() * 0 + 3

    got = list(prefetch([torch.ones(2).pin_memory()], "cuda", transform=lambda x: x * parameter))

    assert got[0].tolist() == [3, 3]


@needs_cuda
def test_a_break_leaves_a_clean_device() -> None:
    """Many abandoned iterations leave no memory allocated."""

    def abandon() -> int:
        walk = iter(prefetch(host_batches(10, 1 << 20), "cuda", depth=4))
        for _ in range(3):
            next(walk)
        del walk
        gc.collect()
        torch.cuda.synchronize()
        return int(torch.cuda.memory_allocated())

    first = abandon()

    assert [abandon() for _ in range(20)] == [first] * 20
