"""A script that uses CUDA: its steps are timed on the device; torch.cuda is a fake here."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.utils.data

from penstock import doctor
from penstock.doctor import block as watching
from penstock.doctor.judge.text_report import format_report
from tests.doctor.diagnoses import make_diagnosis


class Event:
    """An event that the device reaches 2 ms after it was recorded."""

    def __init__(self, *, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        """It is recorded."""
        self.at = 1e3 * time.perf_counter() + 2

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds."""
        return other.at - self.at

    def synchronize(self) -> None:
        """The device has got so far."""


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What stands for `torch.cuda`; the script sets `is_used`."""
    monkeypatch.setattr(watching, "_diagnose", lambda *_: None)
    state = SimpleNamespace(is_used=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: state.is_used)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return state


def watch(cuda: SimpleNamespace, *, uses: bool) -> Any:
    """The recording of 20 steps; the script begins to use CUDA in step 6."""
    dataset = torch.utils.data.TensorDataset(torch.arange(80))
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=1)
    with doctor.watch(loader, budget_s=0) as report:
        for number, _ in enumerate(loader):
            cuda.is_used = uses and number >= 6
            time.sleep(0.001)
    return report.recording


def test_a_device_is_watched_once_the_script_uses_it(cuda: SimpleNamespace) -> None:
    """Steps that began before have no time; the others are in the recording."""
    recording = watch(cuda, uses=True)

    first = 7 - recording.warm_up
    assert first > 0
    assert (recording.steps.device_ns[:first] == -1).all()
    assert (recording.steps.device_ns[first:] > 0).all()
    assert 0 <= recording.device["launch_bound"] <= 1


def test_a_script_without_a_device_is_asked_nothing(cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine that has one: CUDA is not initialised."""
    monkeypatch.setattr(torch.cuda, "Event", None)
    recording = watch(cuda, uses=False)

    assert recording.device == {}
    assert set(recording.steps.device_ns.tolist()) == {-1}


def test_a_device_that_has_failed_is_no_obstacle(cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an assertion on the device, every call of CUDA raises; the recording is made nevertheless."""

    def fail(*_: object) -> float:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(Event, "elapsed_time", fail)

    recording = watch(cuda, uses=True)

    assert set(recording.steps.device_ns.tolist()) == {-1}
    assert recording.device["launch_bound"] is None


@pytest.mark.parametrize(("bound", "text"), [(0.0, "Python is ahead of it"), (0.9, "90% of the steps wait for Python")])
def test_the_report_divides_the_step(bound: float, text: str) -> None:
    """Into the device's part, and whether Python or the device is ahead."""
    diagnosis = make_diagnosis()
    diagnosis.recording.steps.device_ns[:] = diagnosis.recording.steps.step_ns // 2
    diagnosis.recording.device = {"launch_bound": bound}

    report = format_report(diagnosis)

    assert f"device busy 50%, {text}" in report
