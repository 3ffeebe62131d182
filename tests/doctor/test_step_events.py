"""StepEvents: the device's part of each step, with a fake of torch's events and streams."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.doctor.machine.step_events import StepEvents


class Device:
    """A device that works through what is launched, on a clock that the test moves; milliseconds."""

    def __init__(self, *, initialized: bool = True) -> None:
        self.now = self.busy_until = 0.0
        device = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing
                self.at = -1.0

            def record(self) -> None:
                """It happens when what was launched before it has ended."""
                self.at = max(device.now, device.busy_until)

            def elapsed_time(self, other: Any) -> float:
                """As torch has it."""
                assert device.now >= other.at, "asked before the device was waited for"
                return float(other.at - self.at)

            def synchronize(self) -> None:
                """As torch has it."""
                device.now = max(device.now, self.at)

        self.torch: Any = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: initialized, Event=Event))

    def watch(self) -> StepEvents:
        """Events on its clock."""
        return StepEvents(self.torch, clock=lambda: round(1e6 * self.now))

    def launch(self, work: float, python: float) -> None:
        """A kernel of ``work`` that takes ``python`` to launch."""
        self.now += python
        self.busy_until = max(self.now, self.busy_until) + work


@pytest.mark.parametrize(
    ("work", "python", "launch_bound"), [(10.0, 1.0, 0.0), (5.0, 10.0, 0.0), (0.5, 10.0, 1.0), (0.0, 10.0, 1.0)]
)
def test_a_step_is_timed_on_the_device(work: float, python: float, launch_bound: float) -> None:
    """From its beginning to the end of its last kernel, also if the script is done long before."""
    device = Device()
    events = device.watch()
    for number in range(3):
        events.begin(number)
        device.launch(work, python)
        events.end()
        device.now = max(device.now, device.busy_until)

    assert events.device_ns(4).tolist() == [round(1e6 * (work + python))] * 3 + [-1]
    assert events.launch_bound() == launch_bound


def test_a_device_that_falls_behind_is_not_launch_bound() -> None:
    """Python is ahead by a step more with each; the work of a step begins when the one before has ended."""
    device = Device()
    events = device.watch()
    for number in range(4):
        events.begin(number)
        device.launch(work=8.0, python=2.0)
        events.end()

    assert events.launch_bound() == 0.0
    assert events.device_ns(4).tolist() == [10_000_000, 8_000_000, 8_000_000, 8_000_000]


def test_nothing_is_asked_before_the_script_uses_the_device() -> None:
    """Nor without torch."""
    events = Device(initialized=False).watch()
    events.begin(0)
    events.end()

    assert events.device_ns(1).tolist() == [-1]
    assert events.launch_bound() is None


def test_a_step_without_an_end_is_left_out() -> None:
    """The script was ended in its middle, or CUDA began in it."""
    device = Device()
    events = device.watch()
    events.end()
    events.begin(0)
    events.begin(1)
    events.end()

    assert events.device_ns(2).tolist() == [-1, 0]
