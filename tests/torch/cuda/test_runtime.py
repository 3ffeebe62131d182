"""What workers share on a device: streams, memory, errors; and how a device is opened."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock as ps
from penstock import transforms as T
from penstock.datasets import StoreDataset
from penstock.errors import ArgumentError, DeviceError
from penstock.sample import SampleKeys, Tree, tree_leaves, tree_map
from penstock.torch import DataLoader
from penstock.torch.cuda import compiler, runtime
from penstock.torch.cuda.build import DeviceRows
from penstock.torch.cuda.compiler import CudaKernels
from penstock.torch.cuda.runtime import CudaRuntime, StepMemory, open_runtime
from penstock.torch.device import pinning
from penstock.torch.loader.device_decoding import find_packet_spec
from penstock.transforms.program.packet_program import PacketRows
from tests.photographs import write_photographs
from tests.torch.cuda.conftest import HostRuntime, HostStream, HostStreams
from tests.torch.cuda.devices import CountedMemory, Driver, NoKernels, Result
from tests.torch.cuda.host_kernels import HostKernels

WORKERS = 16
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs."""
    return write_photographs(tmp_path_factory.mktemp("folder"), per_class=2)


def dataset(folder: Path, **options: Any) -> StoreDataset:
    """Images and labels."""
    ops = [T.Decode(), T.RandomResizedCrop(40), T.ToLayout("CHW")]
    return StoreDataset(ps.open(folder), ("image", "label"), T.Pipeline(ops), **options)


def device_rows(data: StoreDataset, opened: CudaRuntime) -> DeviceRows:
    """As a loader makes them."""
    spec, reason = find_packet_spec(data)
    assert not reason
    return DeviceRows(opened, spec, lambda arrays: arrays)


def filled(data: StoreDataset, count: int) -> tuple[PacketRows, Any, SampleKeys]:
    """The packets of the first images, which rows, and their keys."""
    spec, _ = find_packet_spec(data)

    def make(leaf: Any) -> Any:
        return leaf.make_rows(count) if hasattr(leaf, "make_rows") else np.empty((count, *leaf.shape), leaf.dtype)

    arrays: Tree = tree_map(make, spec)
    rows, keys = np.arange(count), SampleKeys(1, 0, np.arange(count))
    data.fill(rows, arrays, keys, rows)
    return next(leaf for leaf in tree_leaves(arrays) if isinstance(leaf, PacketRows)), rows, keys


# memory and streams


def test_memory_between_the_steps_does_not_grow_with_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 workers that decode at once hold that memory once; torch's allocator keeps memory for each stream."""
    data, streams = dataset(folder), HostStreams()
    opened = CudaRuntime(CPU, NoKernels(streams), streams)
    packets, rows, keys = filled(data, 12)
    device = device_rows(data, opened)
    memory, kept = CountedMemory(streams, monkeypatch), []
    with contextlib.ExitStack() as workers:
        for _ in range(WORKERS):
            workers.enter_context(opened.working())
            kept.append(device.decode(packets, rows, np.empty, keys)[0])

    decode_stream, *others = streams.made
    of_rows = sum(batch.nbytes for batch in kept)
    assert len(others) == WORKERS
    assert 64 << 20 <= memory.held[decode_stream] - of_rows < 65 << 20
    assert sum(memory.held.get(stream, 0) for stream in others) == 0, "what workers copy is not made by torch.empty"


def test_step_memory_is_freed_with_the_last_loader(folder: Path) -> None:
    """Loaders at the same time share it; it does not stay when they have ended."""
    streams = HostStreams()
    opened = CudaRuntime(CPU, NoKernels(streams), streams)
    first, second = (device_rows(dataset(folder), opened) for _ in range(2))
    shared = opened.share_memory()
    place = shared.reserve({"a": 1})["a"].data_ptr()

    assert opened.share_memory() is shared
    assert shared.reserve({"a": 100})["a"].data_ptr() == place
    del shared, first
    assert opened.share_memory().reserve({"a": 5})["a"].data_ptr() == place
    del second
    assert opened._memory is not None
    assert opened._memory() is None


def test_step_memory_grows_and_its_parts_do_not_overlap() -> None:
    """In powers of two; a part begins at a multiple of 256 bytes, as tensors of torch do; an error leaves it usable."""
    memory = StepMemory(CPU)
    parts = memory.reserve({"a": 1, "b": 1000, "c": 0, "d": 7})
    places = sorted((part.data_ptr(), part.data_ptr() + part.nbytes) for part in parts.values() if part.nbytes)
    large = memory.reserve({"a": (64 << 20) + 1})["a"]
    with pytest.raises(RuntimeError):
        memory.reserve({"a": 1 << 60})

    assert [part.nbytes for part in parts.values()] == [1, 1000, 0, 7]
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(places))
    assert all((begin - places[0][0]) % 256 == 0 for begin, _ in places)
    assert large.untyped_storage().nbytes() == 128 << 20
    assert memory.reserve({"a": 3})["a"].nbytes == 3


class NamedStream(HostStream):
    """A stream that records who waits for whom."""

    def __init__(self, log: list[tuple[str, ...]], name: str) -> None:
        self.log, self.name = log, name

    def wait_stream(self, other: HostStream) -> None:
        """Record the call."""
        assert isinstance(other, NamedStream)
        self.log.append((self.name, "waits for", other.name))

    def synchronize(self) -> None:
        """Record the call."""
        self.log.append((self.name, "is waited for"))


class NamedStreams(HostStreams):
    """Streams that record calls, also of tensors."""

    def __init__(self) -> None:
        self.log: list[tuple[str, ...]] = []
        self._count = iter(("main", "decode", "first worker", "second worker"))
        super().__init__()

    def make(self) -> HostStream:
        """The next stream."""
        return NamedStream(self.log, next(self._count))

    def record(self, tensor: Any, stream: HostStream) -> None:
        """Record the call."""
        assert isinstance(stream, NamedStream)
        self.log.append((stream.name, "records", str(tuple(tensor.shape))))


def test_kernels_run_behind_the_copies_on_one_stream(folder: Path) -> None:
    """The decode stream waits for the worker's copies, and the worker's stream for the kernels. Memory that the decode
    stream allocates is recorded on the consumer's stream.
    """
    data, streams = dataset(folder), NamedStreams()
    kernels = NoKernels(streams)
    opened = CudaRuntime(CPU, kernels, streams)
    packets, rows, keys = filled(data, 4)
    device = device_rows(data, opened)
    with opened.working(), opened.working():
        images, _ = device.decode(packets, rows, np.empty, keys)
    with opened.working():
        device.decode(packets, rows, np.empty, keys)
    opened.receive((images, np.zeros(3)))

    rounds = [("decode", "waits for", "second worker"), ("second worker", "waits for", "decode")]
    again = [("decode", "waits for", "first worker"), ("first worker", "waits for", "decode")]
    assert streams.log == [*rounds, *again, ("main", "records", "(4, 3, 40, 40)")], "streams of idle workers are used"
    assert {stream for _, stream in kernels.launched} == {streams.made[0]}


def test_launches_of_two_workers_do_not_interleave() -> None:
    """They share the memory between the steps, so one waits until the other has launched."""
    streams = HostStreams()
    opened = CudaRuntime(CPU, NoKernels(streams), streams)
    entered = threading.Event()

    def launch() -> None:
        with opened.launching():
            entered.set()

    other = threading.Thread(target=launch)
    with opened.launching():
        other.start()
        was_entered = entered.wait(0.2)
    other.join(60)

    assert (was_entered, entered.is_set()) == (False, True)


# errors


class FailingStreams(HostStreams):
    """Streams of a device whose context an error has made unusable: each wait is an error, at once."""

    is_lost = False

    def make(self) -> HostStream:
        """A stream of this device."""
        owner = self

        class Stream(HostStream):
            def wait_stream(self, other: HostStream) -> None:
                del other
                self.synchronize()

            def synchronize(self) -> None:
                if owner.is_lost:
                    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nMore lines")

        return Stream()


class FailingKernels(HostKernels):
    """Kernels of which one fails after some launches, and every one after it."""

    def __init__(self, library: Path, streams: FailingStreams, after: int) -> None:
        super().__init__(library)
        self._streams, self._after = streams, after

    def launch(self, name: str, argument: ctypes.Structure, columns: int, rows: int, threads: int) -> None:
        """Run a kernel, or fail as the driver's calls do."""
        self._streams.is_lost = self._streams.is_lost or len(self.launched) >= self._after
        if self._streams.is_lost:
            compiler._call((Result.CUDA_ERROR_ILLEGAL_ADDRESS,))
        super().launch(name, argument, columns, rows, threads)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_lost_device_ends_the_loop_and_the_workers(
    folder: Path, library: Path, monkeypatch: pytest.MonkeyPatch, num_workers: int, on_error: str
) -> None:
    """Every call fails after the first one: a DeviceError, for which no sample is left out; nothing hangs."""
    streams = FailingStreams()
    made = HostRuntime(FailingKernels(library, streams, after=20), streams)
    monkeypatch.setattr(runtime, "open_runtime", lambda _device: made)
    loader = DataLoader(dataset(folder), 4, num_workers=num_workers, decode="cuda", on_error=on_error)
    before = set(threading.enumerate())
    with pytest.raises(DeviceError, match="start the program again"):
        for _ in loader:
            pass
    with pytest.raises(DeviceError):
        list(loader)
    loader.close()
    gc.collect()  # iterators, which the errors' tracebacks kept
    workers = set(threading.enumerate()) - before
    for worker in workers:
        worker.join(60)

    assert not any(worker.is_alive() for worker in workers)
    assert not loader.left_out


def test_too_little_memory_is_said(folder: Path, host_runtime: HostRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's error of its allocator, with what to do; the next epoch decodes, if there is memory then."""
    data = dataset(folder)
    loader = DataLoader(data, 4, num_workers=2, decode="cuda")

    def refuse(_self: StepMemory, _sizes: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has ...")

    with monkeypatch.context() as patched:
        patched.setattr(StepMemory, "reserve", refuse)
        with pytest.raises(DeviceError, match=r"too little free memory .* 2.00 GiB. Lower batch_size") as caught:
            list(loader)

    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert sum(len(labels) for _, labels in loader) == len(data)


# a device is opened


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, library: Path) -> Iterator[Driver]:
    """Two devices, seen from a thread in which the second one is current; nothing computes."""
    del library
    made, streams = Driver(), HostStreams()
    stream = types.SimpleNamespace(cuda_stream=11)
    module = types.SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        current_device=lambda: 1,
        get_device_capability=lambda _device: (9, 0),
        current_stream=lambda _device: stream,
        _is_in_bad_fork=lambda: False,
    )
    zeros = torch.zeros
    monkeypatch.setattr(
        compiler, "torch", types.SimpleNamespace(cuda=module, device=torch.device, zeros=lambda *_, **__: zeros(1))
    )
    for name, value in vars(module).items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(compiler, "_import", lambda _name: made)
    monkeypatch.setattr(compiler, "_nvrtc_version", lambda: "13.2")
    monkeypatch.setattr(compiler, "choose_architecture", lambda major, minor: f"sm_{major}{minor}")
    monkeypatch.setattr(compiler, "load_or_compile", str.encode)
    monkeypatch.setattr(runtime, "CopyStreams", lambda _device: streams)
    runtime._open.cache_clear()
    yield made
    runtime._open.cache_clear()


def test_loaders_share_a_device(driver: Driver) -> None:
    """Without an index it is the thread's current one; its kernels are loaded once, in its own context."""
    opened = open_runtime(torch.device("cuda"))

    assert opened.device == torch.device("cuda:1")
    assert open_runtime(torch.device("cuda:1")) is opened
    assert open_runtime(torch.device("cuda:0")) is not opened
    assert driver.log == [
        call for index in (1, 0) for call in (("push", f"context of device {index}"), ("load", b"sm_90"), ("pop",))
    ]


def test_a_device_that_is_not_there_is_named(driver: Driver) -> None:
    """With how many there are."""
    with pytest.raises(ArgumentError, match='decode="cuda:2": there are 2 CUDA devices'):
        open_runtime(torch.device("cuda:2"))
    assert not driver.log


def test_a_driver_that_loads_nothing_is_named(driver: Driver) -> None:
    """An older driver than NVRTC: both versions, and what to do."""
    driver.loads = Result.CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    with pytest.raises(ArgumentError, match=r"CUDA 12.4, does not load what NVRTC 13.2 compiles: CUDA_ERROR_UNSUPP.*"):
        open_runtime(torch.device("cuda"))
    assert driver.log[-1] == ("pop",)


def test_a_launch_that_fails_is_an_error_of_the_device(driver: Driver) -> None:
    """With CUDA's name of it, and its number."""

    class Argument(ctypes.Structure):
        _fields_ = (("images", ctypes.c_int32),)

    kernels = CudaKernels(torch.device("cuda:1"))
    kernels.launch("finish", Argument(), 2, 3, 128)
    driver.launches = Result.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS \(700\). After most errors"):
        kernels.launch("finish", Argument(), 2, 3, 128)

    assert driver.log[-1] == ("launch", "finish of module", (2, 3, 1, 128, 1, 1))


@pytest.mark.parametrize("decode", ["cuda", "auto"])
def test_after_a_fork_the_device_is_refused(
    folder: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch, decode: str
) -> None:
    """Where the parent has used CUDA: an error before anything starts; "auto" says why the CPU decodes."""
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    loader = DataLoader(dataset(folder), 8, seed=1, decode=decode)
    if decode == "cuda":
        with pytest.raises(ArgumentError, match=r"forked after CUDA was used; start processes with .* 'spawn'"):
            iter(loader)
    else:
        with pytest.warns(UserWarning, match="decode='auto' decodes on the CPU: .* forked") as caught:
            batches = [images for images, _ in loader]
        assert {warning.filename for warning in caught} == {__file__}
        expected = [images for images, _ in DataLoader(dataset(folder), 8, seed=1)]
        assert all(torch.equal(images, own) for images, own in zip(expected, batches, strict=True))
    assert not driver.log


def test_without_the_bindings_auto_decodes_on_the_cpu(
    folder: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build of torch that brings no compiler is no error, and no warning."""
    monkeypatch.setattr(compiler, "is_installed", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images, _ = next(iter(DataLoader(dataset(folder), 8, decode="auto")))
    assert images.device == CPU
    assert not driver.log


def test_a_library_that_cannot_be_loaded_is_said(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's bindings load NVRTC when it is called: the error names it."""

    def refuse() -> None:
        raise RuntimeError('Failure finding "libnvrtc.so.13"\nsearched in ...')

    monkeypatch.undo()
    monkeypatch.setattr(compiler, "_import", lambda _name: types.SimpleNamespace(nvrtcVersion=refuse))
    compiler._nvrtc_version.cache_clear()
    with pytest.raises(ArgumentError, match=r'NVRTC, .*Failure finding "libnvrtc.so.13"\); pip install'):
        compiler.require_bindings()
    assert not driver.log


def test_pages_are_locked_for_the_device_that_decodes(driver: Driver) -> None:
    """Not for the current one, which would get a context of its own."""
    lock = pinning.create_slot_lock(torch.device("cuda:0"))
    own = pinning.create_slot_lock()

    assert lock is not None
    assert own is not None
    assert (lock.device, own.device) == (0, 1)
    assert not driver.log
