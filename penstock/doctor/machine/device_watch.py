"""What a device does while a script is watched: sampled, and timed in each step, from the moment the script uses it.

::

    note_step()    each step: has the script initialised CUDA? ── yes ──> DeviceSampler (gpu.py) starts
    describe()     the sampler's summary, and how many steps are bound by launches (step_events.py)

One belongs to each :class:`~penstock.doctor.watching.watcher.Watcher`. Where a script uses no CUDA, nothing is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.doctor.machine.cuda_in_use import find_cuda

if TYPE_CHECKING:
    from penstock.doctor.machine.gpu import DeviceSampler

__all__ = ["DeviceWatch"]


class DeviceWatch:
    """The sampler of the script's device, once it has one."""

    def __init__(self) -> None:
        self._sampler: DeviceSampler | None = None
        self._is_ended = False

    @property
    def is_used(self) -> bool:
        """Whether the script has begun to use CUDA, as far as :meth:`note_step` has seen."""
        return self._sampler is not None

    def note_step(self) -> None:
        """A step begins. Starts the sampler where the script has begun to use CUDA."""
        if self._sampler is None and not self._is_ended and find_cuda() is not None:
            from penstock.doctor.machine.gpu import DeviceSampler

            self._sampler = DeviceSampler().start()

    def pause(self) -> None:
        """End the thread: a process that forks should have none."""
        if self._sampler is not None:
            self._sampler.pause()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        if self._sampler is not None and not self._is_ended:
            self._sampler.start()

    def stop(self) -> None:
        """Sample nothing more. Idempotent."""
        if not self._is_ended and self._sampler is not None:
            self._sampler.stop()
        self._is_ended = True

    def describe(self, launch_bound: float | None) -> dict[str, Any]:
        """For :attr:`~penstock.doctor.watching.recording.Recording.device`; empty if the script uses no device.

        Parameters
        ----------
        launch_bound : float, optional
            Of :meth:`~penstock.doctor.machine.step_events.StepEvents.launch_bound`.
        """
        summary = {} if self._sampler is None else self._sampler.summary()
        if not summary and launch_bound is None:
            return {}
        return {**summary, "launch_bound": None if launch_bound is None else round(launch_bound, 4)}
