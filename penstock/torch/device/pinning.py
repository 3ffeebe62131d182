"""Page-locked memory, from which a device copies while the program continues.

::

    slot's pages ----CudaPageLock----> locked in place, once per slot: batches are filled where the device reads them
    any other batch --pin_batch()----> copied to torch's page-locked memory, as torch.utils.data does

A loader calls :func:`should_pin` when it is iterated, passes :func:`create_slot_lock` to its slots, and passes batches
that are not in a slot to :func:`pin_batch`. Nothing here starts a thread. CUDA is initialised only by a lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from penstock.errors import ArgumentError
from penstock.sample import Batch
from penstock.torch.device.capture_mode import beside_captures

__all__ = ["CudaPageLock", "can_pin", "create_slot_lock", "pin_batch", "should_pin"]

_logger = logging.getLogger(__name__)

_PORTABLE: Final = 1
"""cudaHostRegisterPortable: the lock holds for all devices of the process."""

_INVALID_RANGES: Final = {1: "the range is not one piece of mapped memory", 712: "it is locked already"}
"""cudaErrorInvalidValue and cudaErrorHostMemoryAlreadyRegistered: errors of the caller."""

_CANNOT_LOCK: Final = frozenset({2, 304, 800, 801, 999})
"""cudaErrorMemoryAllocation, -OperatingSystem, -NotPermitted, -NotSupported, -Unknown: the machine refuses."""

_cuda: Any = torch.cuda  # torch.cuda is only partly typed


def can_pin() -> bool:
    """Return whether there is an accelerator that copies from page-locked memory."""
    if not torch.accelerator.is_available():
        return False
    device = torch.accelerator.current_accelerator()
    return device is not None and device.type != "mps"


def should_pin(pin_memory: bool, pin_memory_device: str = "", *, stacklevel: int = 1) -> bool:
    """Return whether a loader with these arguments pins its batches.

    It gives the warnings that torch gives in ``iter()``.

    Parameters
    ----------
    pin_memory : bool
        The loader's argument.
    pin_memory_device : str
        The loader's argument. torch has deprecated it, and it is ignored.
    stacklevel : int
        Number of frames above the caller to which warnings point.

    Returns
    -------
    bool
        False if there is no accelerator, or one that does not read page-locked memory.
    """
    if not pin_memory:
        return False
    if pin_memory_device:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{pin_memory_device}'.",
            stacklevel=stacklevel + 1,
        )
    if can_pin():
        return True
    reason = "not supported on MPS now," if torch.accelerator.is_available() else "no accelerator is found, then"
    warnings.warn(
        f"'pin_memory' argument is set as true but {reason} device pinned memory won't be used.",
        stacklevel=stacklevel + 1,
    )
    return False


def pin_batch(batch: Batch) -> Batch:
    """Copy the tensors of a batch to page-locked memory, except those that are there already.

    Parameters
    ----------
    batch : object
        Tensors, objects with ``pin_memory()``, mappings, sequences and named tuples of these, nested. Any other
        object is returned unchanged.

    Returns
    -------
    object
        The same structure, with containers of the same types.
    """
    with beside_captures():
        return pin_memory(batch)  # type: ignore[no-untyped-call]  # torch's is untyped


def create_slot_lock(device: torch.device | None = None) -> CudaPageLock | None:
    """Create the page lock of a :class:`~penstock.workers.slots.SlotPool`; None if slots cannot be locked.

    This initialises CUDA. ``device`` is used for all slots; by default it is the current device of the calling thread,
    which should be the one that consumes batches.
    """
    return CudaPageLock(None if device is None else device.index) if torch.cuda.is_available() else None


class _Event(Protocol):
    def query(self) -> bool: ...


class CudaCalls:
    """The calls of CUDA that this module makes, through torch. A test passes a fake."""

    def device(self) -> int:
        """Return the thread's current device."""
        return int(_cuda.current_device())

    def lock(self, device: int, address: int, nbytes: int) -> int:
        """Page-lock memory; return the error code."""
        # In another thread device 0 is current, and would get a context of 0.5 GB.
        with beside_captures(), _cuda.device(device):
            return self._clear_error(int(_cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE)))

    def unlock(self, device: int, address: int) -> int:
        """Unlock memory when all copies from it have ended; return the error code."""
        for used in self._devices_in_use():
            _cuda.synchronize(used)  # a copy may still read the pages
        with beside_captures(), _cuda.device(device):
            return self._clear_error(int(_cuda.cudart().cudaHostUnregister(address)))

    def raise_for(self, error: int) -> None:
        """Raise torch's error if the code is not 0."""
        _cuda.check_error(_cuda.cudart().cudaError(error))

    def describe(self, error: int) -> str:
        """Return CUDA's text for an error code."""
        runtime = _cuda.cudart()
        return str(runtime.cudaGetErrorString(runtime.cudaError(error)))

    def is_capturing(self) -> bool:
        """Return whether a CUDA graph is being captured. An event of another stream would break the capture."""
        return bool(_cuda.is_current_stream_capturing())

    def record_events(self) -> Sequence[_Event]:
        """Record one event on this thread's current stream of each device in use."""
        events: list[_Event] = []
        for device in self._devices_in_use():
            event = _cuda.Event()
            event.record(_cuda.current_stream(device))
            events.append(event)
        return events

    def _devices_in_use(self) -> list[int]:
        has_context = torch._C._cuda_hasPrimaryContext  # noqa: SLF001  # any public query would create a context
        return [device for device in range(_cuda.device_count()) if has_context(device)]

    def _clear_error(self, error: int) -> int:
        """Clear CUDA's last error. Otherwise torch would raise it at its next kernel."""
        if error:
            with contextlib.suppress(RuntimeError):
                torch.ones(1, device="cuda")
        return error


class CudaPageLock:
    """Locks memory in place for CUDA: a :class:`~penstock.workers.slots.PageLock` for slots.

    If the machine does not allow (more) locked memory, this warns once, and memory stays unlocked. Copies from it are
    slower, and :func:`pin_batch` copies such batches.

    Parameters
    ----------
    device : int, optional
        The device in whose context memory is locked, for all devices. The default is the thread's current device.
    cuda : CudaCalls, optional
        A fake, for tests.

    Notes
    -----
    Thread-safe. In a forked process it does nothing.
    """

    def __init__(self, device: int | None = None, *, cuda: CudaCalls | None = None) -> None:
        self._cuda = cuda or CudaCalls()
        self.device = self._cuda.device() if device is None else device
        self.refused = False
        self._locked = False
        self._pid = os.getpid()

    def __call__(self, address: int, nbytes: int) -> Callable[[], None]:
        """Lock the pages of ``nbytes`` bytes from ``address`` on.

        Returns
        -------
        callable
            Unlocks the memory. Call it before the memory is unmapped. It waits for the device, and does nothing at
            exit.

        Raises
        ------
        ArgumentError
            If the memory is locked already, or is not mapped.
        RuntimeError
            If an earlier error has made the device unusable.
        """
        if self.refused or self._pid != os.getpid():
            return _do_nothing
        error = self._cuda.lock(self.device, address, nbytes)
        if error in _CANNOT_LOCK:
            self._warn_refused(nbytes, error)
            return _do_nothing
        if error in _INVALID_RANGES:
            raise ArgumentError(f"cannot page-lock {nbytes} bytes at {address:#x}: {_INVALID_RANGES[error]}")
        self._cuda.raise_for(error)
        self._locked = True
        return lambda: self._unlock(address)

    def fence(self) -> Callable[[], bool]:
        """Record events on this thread's current streams, of all devices in use; the function says if all are done."""
        if not self._locked:
            return _return_true
        return _Fence(self._cuda) if self._is_alive() else _return_false

    def _is_alive(self) -> bool:
        return self._pid == os.getpid() and not sys.is_finalizing()

    def _warn_refused(self, nbytes: int, error: int) -> None:
        self.refused = True
        warnings.warn(
            f"CUDA could not page-lock {nbytes} bytes: {self._cuda.describe(error)} ({error}). Batches are "
            "copied to torch's pinned memory instead, which is slower. A common cause is a limit on locked memory: "
            "raise it with `ulimit -l`, or in the container's settings.",
            stacklevel=3,
        )

    def _unlock(self, address: int) -> None:
        if not self._is_alive():
            return
        try:
            error = self._cuda.unlock(self.device, address)
        except RuntimeError as failed:  # a finaliser cannot raise; the user has seen the device's error
            _logger.debug("unlocking %#x: %s", address, failed)
            return
        if error:
            _logger.debug("unlocking %#x: CUDA error %d", address, error)


class _Fence:
    """True when called after the device has finished all work that was queued before the fence was created."""

    __slots__ = ("_cuda", "_events")

    def __init__(self, cuda: CudaCalls) -> None:
        self._cuda = cuda
        self._events: list[_Event] | None = None
        self()

    def __call__(self) -> bool:
        try:
            if self._cuda.is_capturing():
                return False  # called again later
            with beside_captures():
                if self._events is None:
                    self._events = list(self._cuda.record_events())
                while self._events and self._events[-1].query():
                    self._events.pop()
        except RuntimeError as failed:  # raised in __del__: the device is lost, so its slots are not reused
            _logger.debug("a fence failed: %s", failed)
            return False
        return not self._events


def _do_nothing() -> None:
    pass


def _return_true() -> bool:
    return True


def _return_false() -> bool:
    return False
