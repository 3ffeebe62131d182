"""Page-locked memory: when batches are pinned, what is locked or copied, and when a slot is used again."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from penstock.errors import ArgumentError  # noqa: E402  # it needs torch
from penstock.torch.device import pinning  # noqa: E402  # as above
from penstock.workers.slots import SlotPool  # noqa: E402  # as above
from tests.torch.device.devices import needs_cuda  # noqa: E402  # as above


class FakeEvent:
    """An event that is done when the test says so."""

    def __init__(self, device: FakeCuda) -> None:
        self._device = device
        device.recorded += 1
        self.number = device.recorded

    def query(self) -> bool:
        """Whether the device has reached the event."""
        return self.number <= self._device.done


class FakeCuda(pinning.CudaCalls):
    """A fake of CUDA that records calls and returns the error of the test."""

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.log: list[tuple[Any, ...]] = []
        self.recorded = self.done = 0
        self.in_capture = self.lost = False

    def device(self) -> int:
        """The second device of a node."""
        return 1

    def lock(self, device: int, address: int, nbytes: int) -> int:
        """Record the call."""
        self.log.append(("lock", device, address, nbytes))
        return self.error

    def unlock(self, device: int, address: int) -> int:
        """Record the call."""
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.log.append(("unlock", device, address))
        return self.error

    def raise_for(self, error: int) -> None:
        """Raise as torch.cuda.check_error does."""
        if error:
            raise RuntimeError(f"CUDA error {error}")

    def describe(self, error: int) -> str:
        """The text of cudaGetErrorString."""
        return "out of memory" if error == 2 else "some error"

    def is_capturing(self) -> bool:
        """Whether a graph is being captured."""
        return self.in_capture

    def record_events(self) -> list[FakeEvent]:
        """Events of two streams."""
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return [FakeEvent(self), FakeEvent(self)]


def locked(error: int = 0) -> tuple[FakeCuda, pinning.CudaPageLock]:
    """A lock with a fake of CUDA."""
    cuda = FakeCuda(error)
    return cuda, pinning.CudaPageLock(cuda=cuda)


class Point(NamedTuple):
    """A batch with named fields."""

    x: Any
    y: Any


class Custom:
    """An object that pins itself."""

    def __init__(self) -> None:
        self.pinned = False

    def pin_memory(self) -> Custom:
        """torch's method for custom batches."""
        self.pinned = True
        return self


# should_pin


def torchs_warnings(**arguments: Any) -> list[tuple[Any, str]]:
    """The warnings of torch.utils.data when a loader with these arguments is iterated."""
    loader = torch.utils.data.DataLoader(torch.arange(3), **arguments)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        iter(loader)
    return [(w.category, str(w.message)) for w in caught]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="about machines without an accelerator")
@pytest.mark.parametrize(
    "arguments",
    [
        {"pin_memory": False},
        {"pin_memory": True},
        {"pin_memory": True, "pin_memory_device": "cuda"},
        {"pin_memory": False, "pin_memory_device": "cuda"},
    ],
)
def test_without_an_accelerator_torchs_warnings_are_given(arguments: dict[str, Any]) -> None:
    """The warnings have torch's text, and nothing is pinned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = pinning.should_pin(**arguments)

    assert answer is False
    assert [(w.category, str(w.message)) for w in caught] == torchs_warnings(**arguments)
    assert {w.filename for w in caught} <= {__file__}


@pytest.mark.parametrize(("kind", "answer", "warned"), [("cuda", True, 0), ("xpu", True, 0), ("mps", False, 1)])
def test_an_accelerator_is_pinned_for_unless_it_cannot(
    kind: str, answer: bool, warned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPS does not copy from page-locked memory; torch's warning says so."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = pinning.should_pin(True)

    assert got is answer
    assert pinning.can_pin() is answer
    assert len(caught) == warned
    for w in caught:
        assert str(w.message) == (
            "'pin_memory' argument is set as true but not supported on MPS now, device pinned memory won't be used."
        )


# pin_batch


def test_pinning_walks_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors and custom types are pinned at any depth; containers keep their types; other objects are unchanged."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, device=None: self + 100)
    custom = Custom()
    array = np.zeros(2)
    batch = collections.OrderedDict(
        a=torch.zeros(1), b=[torch.ones(1), "text", b"bytes"], c=Point(torch.ones(1), 3), d=(custom, array, None)
    )

    pinned = pinning.pin_batch(batch)

    assert type(pinned) is collections.OrderedDict
    assert pinned["a"].item() == 100
    assert pinned["b"][0].item() == 101
    assert pinned["b"][1:] == ["text", b"bytes"]
    assert type(pinned["c"]) is Point
    assert (pinned["c"].x.item(), pinned["c"].y) == (101, 3)
    assert pinned["d"][0] is custom
    assert custom.pinned
    assert pinned["d"][1] is array
    assert batch["a"].item() == 0


# locking in place


def test_a_slot_is_locked_for_the_consumers_device() -> None:
    """The device is the current one where the lock is created, for any thread that allocates a slot."""
    cuda, lock = locked()
    pool = SlotPool(page_lock=lock)
    array = pool.take(5000).bytes()
    address = array.__array_interface__["data"][0]
    del pool, array

    assert cuda.log == [("lock", 1, address, 8192), ("unlock", 1, address)]


@pytest.mark.parametrize("error", [2, 304, 800, 801])
def test_a_machine_that_locks_nothing_is_warned_of_once(error: int) -> None:
    """Slots work without locks: locking is not tried again, and nothing waits for the device."""
    cuda, lock = locked(error)
    pool = SlotPool(page_lock=lock)
    with pytest.warns(UserWarning, match="could not page-lock 4096 bytes") as caught:
        kept = [pool.take(10).bytes() for _ in range(6)]
    kept.clear()
    again = pool.take(10).bytes()
    again[:] = 1

    assert len(caught) == 1
    assert lock.refused
    assert pool.allocated == 6
    del again, pool
    assert [entry[0] for entry in cuda.log] == ["lock"]


@pytest.mark.parametrize(("error", "text"), [(1, "not one piece of mapped memory"), (712, "locked already")])
def test_a_callers_mistake_is_an_error(error: int, text: str) -> None:
    """Memory that is not mapped, or is locked already, is an error with the reason."""
    _, lock = locked(error)

    with pytest.raises(ArgumentError, match=text):
        lock(4096, 100)


def test_a_lost_device_is_torchs_error() -> None:
    """An error of an earlier kernel is raised; it is not reported as a limit on memory."""
    _, lock = locked(700)

    with pytest.raises(RuntimeError, match="700"):
        lock(4096, 100)


def test_a_slot_waits_for_every_stream() -> None:
    """A fence is true when the events of all streams are done, in any order, and stays true."""
    cuda, lock = locked()
    lock(4096, 100)
    fence = lock.fence()

    answers = []
    for cuda.done in (0, 1, 2, 0):
        answers.append(fence())

    assert answers == [False, False, True, True]


def test_nothing_locked_is_nothing_to_wait_for() -> None:
    """Without locked memory there are no asynchronous copies, so no event is recorded."""
    cuda, lock = locked()

    assert lock.fence()()
    assert cuda.recorded == 0


def test_a_fence_keeps_out_of_graph_capture() -> None:
    """During the capture of a CUDA graph no event is recorded or queried; the fence works afterwards."""
    cuda, lock = locked()
    lock(4096, 100)
    cuda.in_capture = True
    fence = lock.fence()
    during = fence(), cuda.recorded
    cuda.in_capture, cuda.done = False, 2

    assert during == (False, 0)
    assert fence()
    assert cuda.recorded == 2


def test_a_lost_device_frees_no_slot_and_raises_nowhere() -> None:
    """Finalisers call fences and unlock memory: on a lost device fences stay false, and nothing is raised."""
    cuda, lock = locked()
    pool = SlotPool(page_lock=lock)
    kept = [pool.take(10) for _ in range(5)]
    cuda.lost = True
    kept.clear()

    fresh = pool.take(10)

    assert pool.allocated == 6
    del fresh, pool
    assert [entry[0] for entry in cuda.log] == ["lock"] * 6


def test_a_forked_child_asks_nothing_of_cuda() -> None:
    """CUDA does not work after a fork: in the child a lock does nothing, and fences are false."""
    code = (  # in a process of its own, which has no threads
        "import os, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from test_pinning import locked\n"
        "cuda, lock = locked()\n"
        "undo = lock(4096, 100)\n"
        "if (child := os.fork()) == 0:\n"
        "    undo(); lock(8192, 100)()\n"
        "    os._exit(len(cuda.log) + 10 * cuda.recorded + 100 * lock.fence()())\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, os.path.dirname(__file__)],  # noqa: PTH120  # a word for a command line
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


def test_without_cuda_slots_are_not_locked() -> None:
    """Without a CUDA device a loader gets no lock."""
    assert (pinning.create_slot_lock() is None) is not torch.cuda.is_available()


# on a device


@needs_cuda
def test_a_locked_slot_is_pinned_memory() -> None:
    """torch reports tensors in a locked slot as pinned, so pin_batch() does not copy them."""
    lock = pinning.create_slot_lock()
    assert lock is not None
    pool = SlotPool(page_lock=lock)
    tensor = torch.from_numpy(pool.take(1 << 20).bytes())[4096:]

    stays = pinning.pin_batch([tensor])[0]
    copied = pinning.pin_batch(torch.zeros(4096))

    assert tensor.is_pinned()
    assert stays.data_ptr() == tensor.data_ptr()
    assert copied.is_pinned()


@needs_cuda
def test_locking_twice_is_refused_and_leaves_no_error_behind() -> None:
    """CUDA's error is cleared, so the next kernel does not raise it."""
    array = np.zeros(1 << 20, np.uint8)
    address = array.__array_interface__["data"][0] + 4095 & ~4095
    undo = pinning.CudaPageLock()(address, 8192)

    with pytest.raises(ArgumentError, match="locked already"):
        pinning.CudaPageLock()(address, 8192)
    sum_ = (torch.ones(10, device="cuda") * 2).sum().item()
    undo()

    assert sum_ == 20
    pinning.CudaPageLock()(address, 8192)()


@needs_cuda
@pytest.mark.parametrize("side", [False, True])
def test_a_slot_is_not_overwritten_under_a_copy(side: bool) -> None:
    """Batches that are deleted when their copy is queued, behind slow kernels, arrive intact."""
    lock = pinning.create_slot_lock()
    pool = SlotPool(page_lock=lock)
    slow = torch.randn(4096, 4096, device="cuda")
    stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
    arrived = []
    for number in range(40):
        host = pool.take(1 << 24).bytes()
        host[:] = number
        for _ in range(4):
            slow = (slow @ slow).clamp(-1, 1)
        if side:
            stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            arrived.append(torch.from_numpy(host).to("cuda", non_blocking=True))
        del host
        if side:
            torch.cuda.current_stream().wait_stream(stream)

    assert [(int(t.min()), int(t.max())) for t in arrived] == [(n, n) for n in range(40)]


@needs_cuda
def test_a_program_with_locked_slots_ends_quietly() -> None:
    """CUDA may be unloaded before the slots at exit: the program ends without a crash or a message."""
    code = (
        "import torch\n"
        "from penstock.workers.slots import SlotPool\n"
        "from penstock.torch.device.pinning import create_slot_lock\n"
        "pool = SlotPool(page_lock=create_slot_lock())\n"
        "kept = [torch.from_numpy(pool.take(1 << 20).bytes()).to('cuda', non_blocking=True) for _ in range(5)]\n"
        "array = pool.take(1 << 20).bytes()\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
