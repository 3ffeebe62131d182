"""Which stage a stack is in, by the names of functions, of modules and of what they call."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from penstock.doctor.watching.stack_sampling import Activity, SampledThread, StackSampler
from penstock.doctor.watching.stack_stages import Kind, classify
from penstock.doctor.watching.stage_names import (
    Called,
    is_copy_call,
    stage_of_call,
    stage_of_module,
    stage_of_name,
)

_BOUNDARY = {"__name__": "penstock.workers.example"}
exec("def call(function, *arguments):\n    return function(*arguments)", _BOUNDARY)  # a module of a worker


def call_in_worker(function: Callable[..., str], *arguments: object) -> str:
    """Call ``function`` as a worker does."""
    call: Callable[..., str] = _BOUNDARY["call"]  # type: ignore[assignment]  # defined above
    return call(function, *arguments)


def look_from(function: Callable[..., str], *arguments: object, kind: Kind = "sample", waits: bool = False) -> str:
    """What a look finds while ``function`` runs in a worker; it gets a function that looks at its caller."""

    def look(*_: object) -> str:
        frame = sys._getframe(1)
        return classify(frame, kind, waits=waits)

    return call_in_worker(function, look, *arguments)


def read_picture(look: Callable[[], str]) -> str:
    """Named after reading."""
    return look()


def imdecode_fast(look: Callable[[], str]) -> str:
    """Named after decoding."""
    return look()


def load_and_decode(look: Callable[[], str]) -> str:
    """Named after both."""
    return look()


class SlowColorJitter:
    """A transform."""

    def __call__(self, look: Callable[[], str]) -> str:
        """Named after its class."""
        return look()


def prepare(look: Callable[[], str]) -> str:
    """Named after nothing."""
    return look()


def prepare_file(look: Callable[[], str], path: Path) -> str:
    """Opens a file, and is named after nothing."""
    with path.open("rb") as file:
        file.seek(0)
        return look()


def to_device(look: Callable[[], str]) -> str:
    """Named after a copy."""
    return look()


def replaced_method(look: Callable[..., str], argument: str) -> Any:
    """Calls a function of any name as a method ``to``."""
    batch, device, half = types.SimpleNamespace(to=look), "cuda", "half"
    return batch.to(device) if argument == "device" else batch.to(half)


@pytest.mark.parametrize(
    ("function", "waits", "stage"),
    [
        (read_picture, False, "read"),
        (read_picture, True, "read"),
        (imdecode_fast, False, "decode"),
        (imdecode_fast, True, "decode"),
        (load_and_decode, True, "read"),
        (load_and_decode, False, "decode"),
        (SlowColorJitter(), True, "augment"),
        (prepare, False, "augment"),
        (prepare, True, "augment"),
    ],
)
def test_the_name_of_a_function_tells_its_stage(function: Callable[..., str], *, waits: bool, stage: str) -> None:
    """The innermost function whose name says something decides; without any, the sample is being augmented."""
    assert look_from(function, waits=waits) == stage


def test_a_function_that_opens_a_file_reads_while_it_waits(tmp_path: Path) -> None:
    """A disk that is throttled by `time.sleep` beside `read` is reading; the same function may compute."""
    path = tmp_path / "image.bin"
    path.write_bytes(b"bytes")

    assert look_from(prepare_file, path, waits=True) == "read"
    assert look_from(prepare_file, path, waits=False) == "augment"


@pytest.mark.parametrize(
    ("name", "waits", "stage"),
    [
        ("numpy.load", False, "read"),
        (".read", True, "read"),
        ("open", False, "read"),
        ("cv2.imread", True, "read"),
        ("cv2.imread", False, "decode"),
        ("cv2.imdecode", False, "decode"),
        ("zlib.decompress", False, "decode"),
        (".decode", False, "decode"),
        ("time.sleep", True, None),
        ("numpy.sort", False, None),
    ],
)
def test_the_called_function_tells_its_stage(name: str, waits: bool, stage: str | None) -> None:
    """Functions of known libraries are known by their full names; `imread` reads while it waits, and then decodes."""
    assert stage_of_call(Called(name), waits=waits) == stage


@pytest.mark.parametrize(
    ("module", "function", "stage"),
    [
        ("PIL.ImageFile", "load", "decode"),
        ("PIL.Image", "resize", "augment"),
        ("PIL.Image", "open", "decode"),
        ("torchvision.transforms.v2._color", "forward", "augment"),
        ("torchvision.io.image", "read_file", "read"),
        ("torchvision.io.image", "decode_image", "decode"),
        ("albumentations.core.composition", "__call__", "augment"),
        ("h5py._hl.dataset", "__getitem__", "read"),
        ("my_project.data", "prepare", None),
        ("torchvisionary", "forward", None),
    ],
)
def test_the_module_tells_the_stage(module: str, function: str, stage: str | None) -> None:
    """The longest known prefix of a module decides, by whole parts of its name."""
    assert stage_of_module(module, function) == stage


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("Dataset.load_image", ("read",)),
        ("fetchSample", ("read",)),
        ("spread_out", ()),
        ("thread_main", ()),
        ("already_done", ()),
        ("Reader.__call__", ("read",)),
        ("SlowReadDataset.__getitem__", ()),
        ("<listcomp>", ()),
        ("random_crop", ("augment",)),
        ("TrainingPipeline.<locals>.normalise", ("augment",)),
        ("jpeg_decode_and_resize", ("decode", "augment")),
    ],
)
def test_words_of_a_name(name: str, stages: tuple[str, ...]) -> None:
    """Whole words for reading, since `thread` contains `read`; a dataset's own class name says nothing."""
    assert stage_of_name(name) == stages


@pytest.mark.parametrize(
    ("name", "arguments", "copies"),
    [
        (".to", "device", True),
        (".to", "'cuda:0', non_blocking=True", True),
        (".to", "self.device", True),
        (".to", "torch.float16", False),
        (".to", "memory_format=torch.channels_last", False),
        (".to", "torch.float32, device=device", True),
        (".cuda", "", True),
        (".pin_memory", "", True),
        ("copy_to_device", "x", True),
        ("move_batch_to_gpu", "x", True),
        ("get_device_name", "", False),
        ("to_numpy", "", False),
        ("copy.copy", "x", False),
        ("transfer", "x", True),
        ("copy_batch", "x", True),
        ("copy_weights", "x", False),
    ],
)
def test_copies_to_a_device(name: str, arguments: str, copies: bool) -> None:
    """A call copies by its name, and `to` by its arguments: a cast of the type is part of the step."""
    assert is_copy_call(Called(name, arguments)) is copies


def test_a_copy_is_found_on_the_stack_of_a_step() -> None:
    """By the name of a function, and by the source of a call, whatever function stands behind it."""
    assert look_from(to_device, kind="step") == "copy"
    assert look_from(prepare, kind="step") == "step"
    assert look_from(replaced_method, "device", kind="step") == "copy"
    assert look_from(replaced_method, "half", kind="step") == "step"


def test_real_libraries_are_recognised() -> None:
    """The stack within Pillow, seen through a file object that looks at it."""
    image = Image.fromarray(np.zeros((64, 64, 3), np.uint8))
    stored = io.BytesIO()
    image.save(stored, "JPEG")
    seen: list[str] = []

    class File(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            frame = sys._getframe().f_back
            assert frame is not None
            seen.append(classify(frame, "sample"))
            return super().read(-1 if size is None else size)

    Image.open(File(stored.getvalue())).load()

    assert set(seen) == {"read"}  # Pillow calls `read`
    assert stage_of_module("PIL.Image", "copy") == "decode"  # convert() of an RGB image
    assert stage_of_module("PIL.Image", "resize") == "augment"
    assert stage_of_call(Called(".execute"), waits=False) == "read"  # a database


class Looks(Activity):
    """An activity that keeps the stage of each look."""

    def __init__(self) -> None:
        super().__init__("sample", time.perf_counter_ns())
        self.stages: list[str] = []

    def add(self, stage: str, *arguments: int) -> None:
        """See :class:`Activity`."""
        self.stages.append(stage)
        super().add(stage, *arguments)

    def await_looks(self, count: int, work: Callable[[], object]) -> None:
        """Work until the thread was looked at so many times."""
        deadline = time.monotonic() + 60
        while len(self.stages) < count:
            assert time.monotonic() < deadline, f"looked at {len(self.stages)} times of {count}"
            work()


def test_a_thread_is_looked_at_while_it_works() -> None:
    """Nothing is seen of a thread without an activity."""
    sampler, thread, activity = StackSampler(), SampledThread(), Looks()
    idle = SampledThread(threading.get_ident() + 1, thread.native_id)
    thread.activity = activity
    sampler.watch_thread(thread)
    sampler.watch_thread(idle)

    def decode_slowly() -> None:
        activity.await_looks(10, lambda: sum(range(1000)))

    sampler.start()
    decode_slowly()
    sampler.stop()
    thread.activity = None

    assert "decode" in activity.stages
    assert activity.weights["decode"] > 0
    assert idle.activity is None
    assert sampler.cpu_ns > 0


def test_time_goes_to_the_stages_of_what_a_thread_does() -> None:
    """Each look stands for the time since the one before."""
    nobody = SampledThread(1, 1 << 22)  # the clocks of a thread that is not there say nothing
    looked = [100, 150, 400, 500]

    def look(*_: object) -> str:
        nobody.look(sys._getframe(1), looked.pop(0))
        return ""

    nobody.rest(80)
    activity = nobody.activity = Activity("sample", 90)
    call_in_worker(imdecode_fast, look)
    call_in_worker(imdecode_fast, look)
    call_in_worker(read_picture, look)
    nobody.activity = None
    call_in_worker(read_picture, look)

    assert looked == []
    assert activity.weights == {"decode": 70, "read": 250}


def test_looks_are_not_at_the_moments_that_a_thread_chooses() -> None:
    """A thread that lets go of the interpreter's lock only to read is seen at its work in between."""
    sampler, thread, activity = StackSampler(), SampledThread(), Looks()
    thread.activity = activity
    sampler.watch_thread(thread)
    descriptor = os.open("/dev/zero", os.O_RDONLY)

    def augment_a_millisecond() -> None:
        until = time.thread_time_ns() + 1_000_000
        while time.thread_time_ns() < until:
            pass

    def work() -> None:
        os.pread(descriptor, 100, 0)
        augment_a_millisecond()

    sampler.start()
    activity.await_looks(30, work)
    sampler.stop()
    os.close(descriptor)

    assert sys.getswitchinterval() == pytest.approx(0.005)
    assert activity.stages.count("augment") > len(activity.stages) / 2


def test_a_function_of_c_is_seen_in_code_that_is_hot() -> None:
    """Python replaces instructions of code that runs often; a call that only waits is found there too."""
    seen: list[str] = []
    is_over, is_hot = threading.Event(), threading.Event()

    def sample() -> None:
        count = 0
        while not is_over.is_set():
            time.sleep(0.001)
            count += 1
            if count == 100:
                is_hot.set()

    thread = threading.Thread(target=sample)
    thread.start()
    assert is_hot.wait(60), "the thread did not run 100 times"
    while len(seen) < 50:
        frame = sys._current_frames()[thread.ident or 0]
        if frame.f_code is sample.__code__:
            seen.append(classify(frame, "sample", waits=True))
        time.sleep(0.001)
    is_over.set()
    thread.join()

    assert seen.count("read") > len(seen) / 2
