"""Records that are read before they are asked for: each once, in bounded memory, errors left to the reader."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.stores.common.read_ahead import ReadAhead
from penstock.testing.lifetime import in_child


class Source:
    """Loads numbers, and notes which; a gate holds loading up."""

    def __init__(self, max_nbytes: int = 1000) -> None:
        self.loaded: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False
        self.ahead = ReadAhead(self.load, lambda record: 10, max_nbytes)

    def load(self, indices: Sequence[int]) -> Mapping[int, Any]:
        """As a store does."""
        self.gate.wait(60)
        self.loaded.append(list(indices))
        if self.fails:
            raise OSError("no answer")
        return {index: f"record {index}" for index in indices}


def settle() -> None:
    """Wait until no thread reads."""
    for thread in threading.enumerate():
        if thread.name == "penstock-read-ahead":
            thread.join(60)
            assert not thread.is_alive()


def wait_for(condition: Callable[[], object]) -> None:
    """Wait for another thread."""
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen")


def test_announced_records_are_given_once() -> None:
    """take() gives what was announced, and forgets it."""
    source = Source()
    source.ahead.submit([3, 1, 3])
    settle()

    assert source.ahead.take([1, 7, 3]) == {1: "record 1", 3: "record 3"}
    assert source.ahead.take([1, 3]) == {}
    assert source.loaded == [[3, 1]]


def test_no_thread_without_work() -> None:
    """A thread runs only while there is something to read."""
    source = Source()
    assert source.ahead.take([1]) == {}
    assert not [each for each in threading.enumerate() if each.name == "penstock-read-ahead"]

    source.ahead.submit([1])
    settle()

    assert not [each for each in threading.enumerate() if each.name == "penstock-read-ahead"]


def test_records_that_are_being_read_are_waited_for() -> None:
    """take() waits for records under way; those that wait in the queue are left to the caller."""
    source = Source()
    source.gate.clear()
    source.ahead.submit([1, 2])
    wait_for(lambda: source.ahead._loading)
    source.ahead.submit([3, 4])
    threading.Timer(0.1, source.gate.set).start()

    assert source.ahead.take([3]) == {}
    assert source.ahead.take([2, 3]) == {2: "record 2"}
    settle()
    assert source.loaded == [[1, 2], [4]]


def test_memory_is_bounded() -> None:
    """Beyond the limit reading pauses, and continues when records are taken; nothing is read twice."""
    source = Source(max_nbytes=60)
    for begin in range(0, 40, 4):
        source.ahead.submit(range(begin, begin + 4))
    settle()
    assert len(source.loaded) == 2

    taken: dict[int, Any] = {}
    for begin in range(0, 40, 4):
        taken |= source.ahead.take(range(begin, begin + 4))
        settle()

    assert taken == {index: f"record {index}" for index in range(40)}
    assert sorted(index for batch in source.loaded for index in batch) == list(range(40))


def test_what_nobody_takes_is_forgotten() -> None:
    """Records of an epoch that was given up do not hold up the next one."""
    source = Source(max_nbytes=60)
    source.ahead.submit(range(6))
    settle()
    for begin in range(100, 200, 2):
        source.ahead.submit([begin, begin + 1])
        settle()

    assert 0 < source.ahead._nbytes <= 80
    assert not set(range(6)) & set(source.ahead._loaded)


def test_an_error_is_left_to_the_reader() -> None:
    """Where reading ahead fails, take() gives nothing, and later announcements work."""
    source = Source()
    source.fails = True
    source.ahead.submit([1, 2])
    settle()
    assert source.ahead.take([1]) == {}

    source.fails = False
    source.ahead.submit([5])
    settle()
    assert source.ahead.take([5]) == {5: "record 5"}


def test_closing_ends_waits() -> None:
    """After close() nothing waits, is read or kept."""
    source = Source()
    source.gate.clear()
    source.ahead.submit([1])
    wait_for(lambda: source.ahead._loading)
    threading.Timer(0.1, source.ahead.close).start()

    assert source.ahead.take([1]) == {}
    source.gate.set()
    settle()
    source.ahead.submit([2])
    settle()
    assert source.ahead.take([1, 2]) == {}


def test_a_child_begins_anew() -> None:
    """After a fork, the child has neither records nor locks of the parent's thread."""
    source = Source()
    source.gate.clear()
    source.ahead.submit([1, 2])
    wait_for(lambda: source.ahead._loading)

    def look() -> bool:
        source.gate = threading.Event()
        source.gate.set()
        assert source.ahead.take([1]) == {}
        source.ahead.submit([8])
        settle()
        return source.ahead.take([8]) == {8: "record 8"}

    answer = in_child(look)
    source.gate.set()
    settle()

    assert answer == b"True"
    assert source.ahead.take([1, 2]) == {1: "record 1", 2: "record 2"}


def test_reading_ahead_keeps_no_store_alive() -> None:
    """The owner is collected while records wait."""
    source = Source(max_nbytes=10)
    source.ahead.submit([1, 2])
    source.ahead.submit([3])
    settle()
    seen = weakref.ref(source)

    del source
    gc.collect()

    assert seen() is None
