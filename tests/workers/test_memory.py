"""A worker's slots and the parent's view of them: never written while looked at, few, and given back."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray

from penstock.system import memory_file
from penstock.system.mapping import map_file
from penstock.workers.processes import memory as memory_module
from penstock.workers.processes.batch_encoding import pack, unpack
from penstock.workers.processes.memory import ALIGNMENT, ParentSlots, WorkerMemory
from penstock.workers.processes.messages import SlotReturn


class Both:
    """A worker's memory and its parent's slots, in one process: what a socket would carry is handed over."""

    def __init__(self) -> None:
        self.worker, self.parent = WorkerMemory(), ParentSlots()

    def carry(self, batch: Any) -> Any:
        """Build a batch on one side; it as the other side has it."""
        pickled, spans = pack(batch, self.worker)
        del batch
        self.parent.add(*self.sent(spans))
        return unpack(pickled, spans, self.parent)

    def sent(self, spans: Any) -> tuple[list[tuple[int, int]], list[int]]:
        """New slots of a message, and their descriptors."""
        report, fds = self.worker.finish(spans)
        given = [os.dup(fd) for fd in fds]
        self.parent.drop(report.dropped)
        self.worker.record_sent()
        return report.new, given

    def begin(self) -> None:
        """The next task: what came back goes to the worker."""
        self.worker.accept_returned(self.parent.take_returned())
        self.worker.begin()

    def collated(self, shape: tuple[int, ...], value: float) -> NDArray[np.float32]:
        """An array in the batch's memory."""
        array: NDArray[np.float32] = self.worker.allocate(shape, np.float32)
        array[...] = value
        return array


def mappings() -> int:
    """How many slots are mapped in this process, on both sides."""
    return sum("penstock-slot" in line for line in Path("/proc/self/maps").read_text().splitlines())


def descriptors() -> int:
    """How many this process has open."""
    return len([*Path("/proc/self/fd").iterdir()])


class Leases(RuleBasedStateMachine):
    """Batches of any size are built, kept, sliced and dropped in any order."""

    @initialize()
    def start(self) -> None:
        """Two sides, nothing kept."""
        self.both = Both()
        self.kept: list[tuple[NDArray[np.float32], float]] = []
        self.count = 0
        self.open = descriptors()

    @rule(rows=st.integers(1, 40), keep=st.booleans(), plain=st.booleans())
    def build(self, rows: int, keep: bool, plain: bool) -> None:
        """One batch; collated into a slot, or anywhere and copied there."""
        self.count += 1
        self.both.begin()
        shape = (rows, 1000)
        made = np.full(shape, self.count, np.float32) if plain else self.both.collated(shape, self.count)
        batch = self.both.carry(made)
        assert (batch == self.count).all()
        if keep:
            self.kept.append((batch[rows // 2 :, ::7], self.count))

    @rule(which=st.integers(0, 100))
    def drop(self, which: int) -> None:
        """The consumer lets go of one."""
        if self.kept:
            self.kept.pop(which % len(self.kept))

    @invariant()
    def whole(self) -> None:
        """Every view that is kept shows what it did; descriptors are as many as they were."""
        if hasattr(self, "both"):
            assert all((view == value).all() for view, value in self.kept)
            assert descriptors() == self.open

    def teardown(self) -> None:
        """Nothing stays mapped when both sides and all views are gone."""
        self.kept.clear()
        del self.both
        assert mappings() == 0


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=settings().max_examples // 8, stateful_step_count=40)


def test_slots_are_used_again() -> None:
    """A consumer that keeps two batches needs a few slots, however long the epoch is."""
    both, kept, most = Both(), [np.empty(0)], 0
    for number in range(200):
        both.begin()
        kept = [kept[-1], both.carry(both.collated((30, 1000), number))]
        most = max(most, mappings()) if number % 20 == 19 else most

    assert most <= 2 * 5


@settings(max_examples=settings().max_examples // 8)
@given(st.lists(st.integers(1000, 30_000), min_size=1, max_size=300))
def test_a_batch_of_many_arrays_lies_in_few_slots(sizes: list[int]) -> None:
    """Their descriptors fit beside one message in the first batch, too, whose size nobody knew; then one is enough."""
    both = Both()
    counts = []
    for _ in "12":
        both.begin()
        arrays = [both.collated((size,), number) for number, size in enumerate(sizes)]
        batch = both.carry(arrays)
        del arrays
        counts.append(mappings() // 2)

        assert all((array == number).all() for number, array in enumerate(batch))
        del batch
    assert counts[0] <= 12
    assert counts[1] <= counts[0] + 1


@pytest.mark.parametrize("what", ["a small result", "nothing", "a copy"])
def test_a_slot_that_the_batch_left_is_used_again(what: str) -> None:
    """Collation wrote to a slot, and the user's function made something else of it: the slot is not lost."""
    both = Both()
    before = descriptors()
    for number in range(30):
        both.begin()
        array = both.collated((30, 1000), number)
        made = {"a small result": array.mean(), "nothing": None, "a copy": array[:15] + 1}[what]
        del array
        both.carry(made)
        del made

    assert mappings() <= 8
    assert descriptors() <= before + 4  # of slots that the parent has not been told of


def test_a_batch_that_fails_costs_no_slot() -> None:
    """What it had reserved is free for the next one."""
    both = Both()
    for number in range(20):
        both.begin()
        both.collated((30, 1000), number)

    assert mappings() <= 4


def test_an_array_that_the_dataset_keeps_is_not_overwritten() -> None:
    """Code in the worker may hold on to what it collated: its slot is left alone."""
    both = Both()
    kept = []
    for number in range(5):
        both.begin()
        array = both.collated((30, 1000), number)
        kept.append(array)
        both.carry(array)
        del array

    assert [float(array[7, 7]) for array in kept] == [0, 1, 2, 3, 4]


def test_a_slot_that_cannot_be_mapped_is_told_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent has no room for one: that batch is an error, the worker lets the slot go, and all goes on."""
    both = Both()
    before = descriptors()

    def refuse(fd: int, nbytes: int) -> Any:
        raise OSError(12, "no room")

    for _ in range(5):
        both.begin()
        told = both.sent(pack(both.collated((30, 1000), 1), both.worker)[1])
        with monkeypatch.context() as patch:
            patch.setattr(memory_module, "map_file", refuse)
            with pytest.raises(OSError, match="no room"):
                both.parent.add(*told)
    both.begin()
    batch = both.carry(both.collated((30, 1000), 2))

    assert (batch == 2).all()
    del batch
    assert mappings() <= 3
    assert descriptors() == before


def test_slots_of_a_batch_that_nobody_will_see_come_back() -> None:
    """Those that were mapped before are free; a worker does not grow by its consumer's errors."""
    both = Both()
    both.begin()
    both.carry(both.collated((30, 1000), 1))
    both.begin()
    both.worker.finish(spans := pack(both.collated((30, 1000), 2), both.worker)[1])
    both.worker.record_sent()
    both.parent.free(spans)
    both.begin()
    both.carry(both.collated((30, 1000), 3))

    assert mappings() == 2


def test_what_was_not_told_is_told_later() -> None:
    """Slots that came back while a task could not be sent are not lost."""
    both = Both()
    both.begin()
    both.carry(both.collated((30, 1000), 1))
    returned = both.parent.take_returned()
    both.parent.put_back(returned)

    assert returned == both.parent.take_returned() == SlotReturn([1], [])


@settings(max_examples=settings().max_examples // 8)
@given(st.integers(1, 1 << 20))
def test_memory_has_no_name_and_is_there_to_its_last_byte(nbytes: int) -> None:
    """A memory file can be written where it ends, and goes with its last mapping."""
    fd = memory_file("penstock-slot", nbytes)
    one, two = map_file(fd, nbytes), map_file(fd, nbytes)
    file = str(Path(f"/proc/self/fd/{fd}").readlink())
    os.close(fd)
    one[-1] = 7

    assert int(two[-1]) == 7
    assert file == "/memfd:penstock-slot (deleted)"  # others' files in /dev/shm are no concern of this test
    del one, two
    assert mappings() == 0


def test_more_memory_than_there_is_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system would hand out page after page until it ends a process: a file of that size is not begun."""
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: pytest.fail("pages were asked for"))

    with pytest.raises(OSError, match="Cannot allocate memory") as caught:
        memory_file("slot", 1 << 50)

    assert caught.value.errno == errno.ENOMEM


@pytest.mark.parametrize("refuses", ["memfd_create", "ftruncate", "posix_fallocate"])
def test_no_memory_is_an_answer_not_an_error(refuses: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call is refused: no descriptor is left, the reason is kept, and arrays lie elsewhere."""
    before = descriptors()

    def refuse(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, refuses, refuse)
    worker = WorkerMemory()
    worker.begin()
    array = worker.allocate((100, 100), np.float32)
    array[...] = 3
    pickled, spans = pack(array, worker)

    assert spans == []
    assert worker.finish([])[0].refused == "[Errno 28] No space left on device"
    assert (unpack(pickled, spans, ParentSlots()) == 3).all()
    assert descriptors() == before


def test_free_slots_are_few() -> None:
    """After a time in which the consumer kept much, memory is let go, on both sides."""
    both, kept = Both(), []
    for number in range(40):
        both.begin()
        kept.append(both.carry(both.collated((30, 1000), number)))
    many = mappings()
    kept.clear()
    for number in range(3):
        both.begin()
        both.carry(both.collated((30, 1000), number))

    assert many == 80
    assert mappings() <= 2 * 6


def test_a_slot_of_many_arrays_waits_for_the_last() -> None:
    """As long as one view of one array lives, the slot is not free; then it is, once."""
    both, arrays = Both(), [np.empty(0)]
    for _ in range(2):  # how large a batch is, is known from the first on
        both.begin()
        arrays = both.carry([both.collated((2000,), n) for n in range(5)])
    both.parent.take_returned()
    too_early = []
    while len(arrays) > 1:
        arrays.pop(0)
        too_early += both.parent.take_returned().freed
    last = arrays.pop()[5:7]
    too_early += both.parent.take_returned().freed
    del last
    freed = both.parent.take_returned().freed

    assert too_early == []
    assert len(freed) == 1


def test_arrays_lie_on_pages() -> None:
    """Each begins at a page: fit for a device's copies, and no two share a cache line."""
    both = Both()
    both.begin()
    batch = both.carry([both.collated((n * 777,), n) for n in range(2, 9)])

    assert [array.ctypes.data % ALIGNMENT for array in batch] == [0] * 7
