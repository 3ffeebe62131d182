"""Page-locked memory: a device copies from it while the program goes on; from other memory it cannot.

::

    slot's pages --CudaPageLock--> locked in place, once per slot: batches are filled where the device reads them
    any other batch ----pin()----> copied into torch's own page-locked memory, as torch.utils.data does

A loader asks :func:`wanted` when it is iterated, gives :func:`slot_lock` to its slots, and sends what was not built in
a slot through :func:`pin`. Nothing here starts a thread, and nothing initialises CUDA before it is asked to lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, Final, Protocol

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from penstock.errors import ArgumentError

__all__ = ["CudaPageLock", "page_lock", "pin", "slot_lock", "usable", "wanted"]

_logger = logging.getLogger(__name__)

_PORTABLE: Final = 1
"""cudaHostRegisterPortable: locked for every device of the process."""

_NOT_OURS_TO_LOCK: Final = {1: "the range is not one piece of mapped memory", 712: "it is locked already"}
"""cudaErrorInvalidValue and cudaErrorHostMemoryAlreadyRegistered: the caller's mistake."""

_CANNOT_LOCK: Final = frozenset({2, 304, 800, 801, 999})
"""cudaErrorMemoryAllocation, -OperatingSystem, -NotPermitted, -NotSupported, -Unknown: the machine says no."""

_cuda: Any = torch.cuda  # half of it is untyped


def usable() -> bool:
    """Whether there is an accelerator for which memory can be page-locked."""
    if not torch.accelerator.is_available():
        return False
    device = torch.accelerator.current_accelerator()
    return device is not None and device.type != "mps"


def wanted(pin_memory: bool, pin_memory_device: str = "", *, stacklevel: int = 1) -> bool:
    """Whether a loader with these arguments pins its batches; warns as torch does when a loader is iterated.

    Parameters
    ----------
    pin_memory : bool
        The loader's argument.
    pin_memory_device : str
        The loader's argument; deprecated by torch, and ignored.
    stacklevel : int
        Frames above the caller to which warnings point.

    Returns
    -------
    bool
        False where there is no accelerator, or one that cannot read page-locked memory.
    """
    if not pin_memory:
        return False
    if pin_memory_device:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{pin_memory_device}'.",
            stacklevel=stacklevel + 1,
        )
    if usable():
        return True
    why = "not supported on MPS now," if torch.accelerator.is_available() else "no accelerator is found, then"
    warnings.warn(
        f"'pin_memory' argument is set as true but {why} device pinned memory won't be used.",
        stacklevel=stacklevel + 1,
    )
    return False


def pin(batch: Any) -> Any:
    """The batch in page-locked memory: what lies there already stays, tensors elsewhere are copied.

    Parameters
    ----------
    batch : object
        Tensors, objects with ``pin_memory()``, mappings, sequences and named tuples of these, nested; anything else
        is handed through.

    Returns
    -------
    object
        The same structure, with containers of the same types.
    """
    return pin_memory(batch)  # type: ignore[no-untyped-call]  # torch's is untyped


def slot_lock() -> CudaPageLock | None:
    """What a loader that pins gives to its :class:`~penstock.slots.SlotPool`; None where slots cannot be locked.

    Initialises CUDA. Call it where batches are consumed: its thread's current device is used for all slots.
    """
    return CudaPageLock() if torch.cuda.is_available() else None


def page_lock(address: int, nbytes: int) -> Callable[[], None]:
    """Page-lock one piece of memory for CUDA's current device; see :class:`CudaPageLock`."""
    return CudaPageLock()(address, nbytes)


class _Event(Protocol):
    def query(self) -> bool: ...


class _Runtime:
    """All that is asked of CUDA, so that a test can answer in its place."""

    def device(self) -> int:
        return int(_cuda.current_device())

    def lock(self, device: int, address: int, nbytes: int) -> Any:
        with _cuda.device(device):  # another thread's current device is 0, and would get a context of 0.5 GB
            return self._forgotten(_cuda.cudart().cudaHostRegister(address, nbytes, _PORTABLE))

    def unlock(self, device: int, address: int) -> Any:
        for used in self._in_use():
            _cuda.synchronize(used)  # a copy may be under way, and the pages go next
        with _cuda.device(device):
            return self._forgotten(_cuda.cudart().cudaHostUnregister(address))

    def raise_for(self, error: Any) -> None:
        _cuda.check_error(error)

    def describe(self, error: Any) -> str:
        return str(_cuda.cudart().cudaGetErrorString(error))

    def capturing(self) -> bool:
        """Whether a CUDA graph is being captured, which a foreign event would spoil."""
        return bool(_cuda.is_current_stream_capturing())

    def events(self) -> list[_Event]:
        """One event behind all that this thread's current streams were told."""
        found: list[_Event] = []
        for device in self._in_use():
            event = _cuda.Event()
            event.record(_cuda.current_stream(device))
            found.append(event)
        return found

    def _in_use(self) -> list[int]:
        has_context = torch._C._cuda_hasPrimaryContext  # noqa: SLF001  # any other question would make a context
        return [device for device in range(_cuda.device_count()) if has_context(device)]

    def _forgotten(self, error: Any) -> Any:
        """CUDA remembers a refusal, and torch would raise it at its next kernel as that one's: let it do so here."""
        if int(error):
            with contextlib.suppress(RuntimeError):
                torch.ones(1, device="cuda")
        return error


class CudaPageLock:
    """Locks memory in place for CUDA; the :class:`~penstock.slots.PageLock` of slots.

    Where the machine allows no (more) locking, there is one warning, and memory stays as it is: it is slower to copy
    from, and :func:`pin` sees that it is not locked.

    Parameters
    ----------
    device : int, optional
        In whose context memory is locked, for all devices; the thread's current one by default.
    runtime : object, optional
        Stands for CUDA in tests.

    Notes
    -----
    May be called by any thread. In a forked process it does nothing.
    """

    def __init__(self, device: int | None = None, *, runtime: Any = None) -> None:
        self._runtime: _Runtime = _Runtime() if runtime is None else runtime
        self.device = self._runtime.device() if device is None else device
        self.refused = False
        self._locked = False
        self._pid = os.getpid()

    def __call__(self, address: int, nbytes: int) -> Callable[[], None]:
        """Lock the pages of ``nbytes`` bytes from ``address`` on.

        Returns
        -------
        callable
            The undo, for before the memory is unmapped; it waits for the device, and does nothing at exit.

        Raises
        ------
        ArgumentError
            If the memory is locked already, or is none.
        RuntimeError
            If an earlier call has left the device unusable.
        """
        if self.refused or self._pid != os.getpid():
            return _nothing
        error = self._runtime.lock(self.device, address, nbytes)
        code = int(error)
        if code in _CANNOT_LOCK:
            self._refuse(nbytes, error)
            return _nothing
        if code in _NOT_OURS_TO_LOCK:
            raise ArgumentError(f"cannot page-lock {nbytes} bytes at {address:#x}: {_NOT_OURS_TO_LOCK[code]}")
        self._runtime.raise_for(error)
        self._locked = True
        return lambda: self._unlock(address)

    def fence(self) -> Callable[[], bool]:
        """See :meth:`penstock.slots.PageLock.fence`: events on this thread's current streams, of all devices in use."""
        if not self._locked:
            return _always
        return _Fence(self._runtime) if self._alive() else _never

    def _alive(self) -> bool:
        return self._pid == os.getpid() and not sys.is_finalizing()

    def _refuse(self, nbytes: int, error: Any) -> None:
        self.refused = True
        warnings.warn(
            f"CUDA could not page-lock {nbytes} bytes: {self._runtime.describe(error)} ({int(error)}). Batches are "
            "copied into torch's own pinned memory instead, which is slower; a limit on locked memory (`ulimit -l`, a "
            "container's settings) is a common reason.",
            stacklevel=3,
        )

    def _unlock(self, address: int) -> None:
        if not self._alive():
            return
        try:
            error = self._runtime.unlock(self.device, address)
        except RuntimeError as failed:  # nothing can be raised out of a finaliser; the device is lost, and has said so
            _logger.debug("unlocking %#x: %s", address, failed)
            return
        if int(error):
            _logger.debug("unlocking %#x: CUDA error %d", address, int(error))


class _Fence:
    """Open once the device has done what it was told before the fence was made."""

    __slots__ = ("_events", "_runtime")

    def __init__(self, runtime: _Runtime) -> None:
        self._runtime = runtime
        self._events: list[_Event] | None = None
        self()

    def __call__(self) -> bool:
        try:
            if self._runtime.capturing():
                return False  # asked again later
            if self._events is None:
                self._events = self._runtime.events()
            while self._events and self._events[-1].query():
                self._events.pop()
        except RuntimeError as failed:  # comes out of __del__: the device is lost, and its slots with it
            _logger.debug("a fence failed: %s", failed)
            return False
        return not self._events


def _nothing() -> None:
    """Undo nothing."""


def _always() -> bool:
    return True


def _never() -> bool:
    return False
