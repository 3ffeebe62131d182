"""Observed steps: the script computes the same, and what it does in each step is told from what it does in some."""

from __future__ import annotations

import gc
import os
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402  # it needs torch

from penstock.doctor.watching.steps.events import EventKind  # noqa: E402  # as above
from penstock.doctor.watching.steps.torch_calls import ObservedSteps, note_batch  # noqa: E402  # as above


@pytest.fixture
def steps() -> Iterator[ObservedSteps]:
    """Steps that are observed by nobody in the end."""
    observed = ObservedSteps()
    yield observed
    observed.end()
    assert torch.overrides._get_current_function_mode_stack() == []


def texts(steps: ObservedSteps, kind: EventKind, *, each_step: bool = True) -> list[str]:
    """The source of the events of a kind."""
    return [event.text for event in steps.events(kind, each_step=each_step)]


def test_what_happens_in_one_step_is_not_done_in_each(steps: ObservedSteps) -> None:
    """Lines of all observed steps are done in each step, others in some."""
    weight = torch.nn.Parameter(torch.ones(4))
    for number in range(2):
        steps.begin()
        loss = weight.sum()
        loss.backward()
        loss.item()
        if number:
            loss.tolist()
        gc.collect()
        steps.end()

    assert steps.is_training
    assert texts(steps, "wait") == ["loss.item()"]
    assert texts(steps, "wait", each_step=False) == ["loss.item()", "loss.tolist()"]
    [collection] = steps.events("cleanup", each_step=True)
    assert collection.text == "gc.collect()"
    assert collection.seconds > 0


def test_a_copy_of_a_part_is_no_copy_of_what_was_loaded(steps: ObservedSteps) -> None:
    """Only what the loader gave is page-locked; a cast is known where the copy is made."""
    batch = {"images": [torch.zeros(8, 3, 64, 64, dtype=torch.uint8)]}
    note_batch(batch, 1)
    images = batch["images"][0]
    steps.begin()
    images.to("meta")
    images[:4].to("meta", non_blocking=True)
    larger = images.double() / 255
    larger.to("meta")
    steps.end()

    copies = [(event.text, event.is_loaded, event.non_blocking) for event in steps.events("copy", each_step=True)]
    [cast] = [event.cast for event in steps.events("cast", each_step=True)]

    assert copies == [
        ('images.to("meta")', True, False),
        ('images[:4].to("meta", non_blocking=True)', False, True),
        ('larger.to("meta")', False, False),
    ]
    assert cast is not None
    assert (cast.text, cast.count_bytes()) == ("images.double()", (98304, 786432))
    assert cast.seconds > 0


def test_a_tensor_of_an_array_is_of_its_batch(steps: ObservedSteps) -> None:
    """``torch.from_numpy`` shares the memory of an array that the loader gave; ``torch.tensor`` copies it."""
    images = np.zeros((8, 3, 64, 64), np.uint8)
    note_batch((images, "text"), 1)
    steps.begin()
    torch.from_numpy(images).float().to("meta")
    torch.tensor(images)
    steps.end()

    assert texts(steps, "cast") == ["torch.from_numpy(images).float()"]
    assert texts(steps, "tensor") == ["torch.tensor(images)"]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a device")
def test_without_a_device_what_was_copied_stays_on_the_host_too(steps: ObservedSteps) -> None:
    """``labels.to(device)`` returns the labels themselves on a CPU; with a device they would be two tensors."""
    device, labels = torch.device("cpu"), torch.arange(8)
    note_batch(labels, 1)
    steps.begin()
    moved = labels.to(device)
    labels.tolist()
    moved.tolist()
    moved.mul_(2)
    steps.end()

    assert texts(steps, "copy") == ["labels.to(device)"]
    assert texts(steps, "wait") == ["moved.tolist()"]
    assert labels.tolist() == list(range(0, 16, 2))


def test_a_compiled_function_is_not_compiled_anew(steps: ObservedSteps) -> None:
    """In observed steps compiled functions run uncompiled, and are seen; afterwards compiled code is used again."""
    compiled: list[int] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        compiled.append(1)
        return graph.forward

    function: Any = torch.compile(lambda values: values.sin().sum(), backend=backend)
    values = torch.nn.Parameter(torch.ones(4))
    seen = expected = function(values)
    for _ in range(2):
        steps.begin()
        seen = function(values)
        seen.item()
        steps.end()

    assert torch.equal(seen, expected)
    assert torch.equal(function(values), expected)
    assert len(compiled) == 1
    assert texts(steps, "wait") == ["seen.item()"]


@pytest.mark.parametrize(("used", "is_observed"), [(30, True), (40, False)])
def test_compiled_steps_that_take_much_memory_are_not_observed(
    steps: ObservedSteps, monkeypatch: pytest.MonkeyPatch, used: int, *, is_observed: bool
) -> None:
    """Uncompiled, a step may take three times the memory: where the device has less, it stays compiled."""
    compiler = types.SimpleNamespace(counters={"frames": {"total": 1}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", compiler)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: used)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (5, 100))

    steps.begin()
    steps.end()

    assert bool(steps.steps) is is_observed


class Mode(TorchFunctionMode):
    """A mode of the script's own."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_modes_of_the_script_stay_as_they_are(steps: ObservedSteps) -> None:
    """Nothing is observed in a mode that may end within the step; one that begins in the step is left on top."""
    weight, mode = torch.nn.Parameter(torch.ones(4)), Mode()
    with mode:
        steps.begin()
        assert torch.overrides._get_current_function_mode_stack() == [mode]
    steps.end()
    steps.begin()
    mode.__enter__()  # type: ignore[no-untyped-call]  # torch has no types for it
    steps.end()
    assert torch.overrides._get_current_function_mode_stack()[-1] is mode
    mode.__exit__(None, None, None)
    steps.begin()
    weight.numpy(force=True)
    steps.end()

    assert len(steps.steps) == 2, "the first was not observed"
    assert texts(steps, "wait", each_step=False) == ["weight.numpy(force=True)"]


def test_a_profiler_of_the_script_stays(steps: ObservedSteps) -> None:
    """The script's own profile function is not replaced; calls of torch are seen all the same."""
    weight = torch.nn.Parameter(torch.ones(4))

    def profile(*_: object) -> None:
        """A profile function of the script."""

    sys.setprofile(profile)
    try:
        steps.begin()
        weight.tolist()
        steps.end()
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)

    assert texts(steps, "wait") == ["weight.tolist()"]


def test_a_step_that_was_left_is_not_observed_for_ever(steps: ObservedSteps) -> None:
    """A loop may be left in an observed step (a check of two batches); another loader's steps say so."""
    other = ObservedSteps()
    steps.begin()
    other.end_others()
    assert len(torch.overrides._get_current_function_mode_stack()) == 1, "it may be `zip` of two loaders"
    for _ in range(4):
        other.end_others()

    assert torch.overrides._get_current_function_mode_stack() == []
    assert steps.steps == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_process_that_is_forked_is_not_observed(steps: ObservedSteps) -> None:
    """A step ends where its thread forks: a worker runs without the mode."""
    steps.begin()
    torch.nn.Parameter(torch.ones(4)).tolist()

    child = os.fork()
    if not child:
        os._exit(len(torch.overrides._get_current_function_mode_stack()) + (sys.getprofile() is not None))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert code == 0
    assert len(steps.steps) == 1


def test_steps_of_a_main_thread_that_another_thread_feeds(steps: ObservedSteps) -> None:
    """The main thread is observed from its first call of a module on, and a new batch begins a step."""
    batches = [torch.ones(2, 4) for _ in range(6)]

    def feed() -> None:
        for number, batch in enumerate(batches, 1):
            steps.follow_main_thread(2)
            note_batch(batch, number)
            steps.end()

    thread = threading.Thread(target=feed)
    thread.start()
    thread.join()
    model = torch.nn.Linear(4, 1)
    for number, batch in enumerate(batches):
        loss = model(batch).sum()
        loss.backward()
        loss.item()
        if number % 2:
            loss.tolist()

    assert len(steps.steps) == 2
    assert texts(steps, "wait") == ["loss.item()"]
    assert torch.overrides._get_current_function_mode_stack() == []
