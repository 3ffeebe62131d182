"""What a step of the script asks torch for, as it happens: copies, casts, waits and clean-ups, each with its line.

::

    step begins ── TorchFunctionMode: each call of torch ─┐                                  step ends
                                                          ├─> ObservedSteps.add(ScriptEvent)
                   profile function: gc.collect, ...     ─┘

Used by :class:`.batch_places.BatchPlaces` in two steps of the warm-up. Calls run unchanged, but compiled functions as
if they were not compiled. A line counts if it is in the user's own code.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final, Literal

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from penstock.datasets.user_code import is_user_file
from penstock.doctor.watching.steps.events import EventKind, ScriptEvent, find_caller, line_of, text_of
from penstock.doctor.watching.steps.known_tensors import KnownTensors, find_cast, find_copied_arrays, list_tensors
from penstock.doctor.watching.steps.source import SourceLine

__all__ = ["ObservedSteps", "note_batch"]

_logger = logging.getLogger(__name__)

_MOVES: Final = frozenset({"to", "cpu", "cuda", "xpu", "mps", "npu", "hpu"})
_WAITS: Final = frozenset(
    {
        "item", "tolist", "numpy", "is_nonzero", "__array__", "__bool__", "__float__", "__int__", "__index__",
        "__complex__", "__format__", "__repr__",
    }
)  # fmt: skip
_JOINS: Final = frozenset({"stack", "cat", "concat", "concatenate", "pad_sequence"})
_CLEANUPS: Final = ("torch.cuda.empty_cache", "torch.mps.empty_cache", "torch.xpu.empty_cache")
_BARRIERS: Final = ("torch.cuda.synchronize", "torch.accelerator.synchronize", "torch.mps.synchronize")
_MOST_CALLS: Final = 200_000
"""Calls of torch after which a step is over: the loop was left, and the script does something else."""
_MOST_OTHERS: Final = 4
"""Steps of another loader within a step; with more, the loop was left, as by a check before training."""
_MORE_MEMORY: Final = 3
"""What a step may take uncompiled, as a multiple of what it takes compiled."""
_LEAST_NBYTES: Final = 1 << 12


class ObservedSteps:
    """What was seen in the steps of one loader.

    Attributes
    ----------
    steps : list of dict
        The events of each step, by what makes them the same.
    is_training : bool
        Whether gradients were computed in a step.
    """

    def __init__(self) -> None:
        self.steps: list[dict[tuple[str, SourceLine, str], ScriptEvent]] = []
        self.is_training = False
        self._open: dict[tuple[str, SourceLine, str], ScriptEvent] = {}
        self._follower: _Follower | None = None
        self._others = 0

    def events(self, kind: EventKind, *, each_step: bool) -> Iterator[ScriptEvent]:
        """Return events of a kind; with ``each_step``, those that happened in each step that was observed."""
        seen = {key: event for step in self.steps for key, event in step.items() if event.kind == kind}
        for key, event in seen.items():
            if not each_step or all(key in step for step in self.steps):
                yield event

    def begin(self) -> None:
        """A step begins in the calling thread."""
        self._open, self._others = {}, 0
        _calls.start(self)

    def end_others(self) -> None:
        """A step of this loader begins: steps of others, in which several have begun, were left before their end."""
        _calls.stop_left(self)

    def is_left(self) -> bool:
        """A step of another loader begins; whether that is one too many within the open step."""
        self._others += 1
        return self._others > _MOST_OTHERS

    def end(self) -> None:
        """The step has ended. Idempotent."""
        if self._follower is not None:
            self._follower.end()
        elif _calls.stop(self):
            self.steps.append(self._open)

    def follow_main_thread(self, count: int) -> None:
        """Observe ``count`` steps of the main thread, which gets its batches from this one."""
        if self._follower is None:
            self._follower = _Follower(self, count)

    def note_use(self, batch: int) -> None:
        """The open step uses the batch of this number; 0: none."""
        if self._follower is not None and batch > self._follower.batch:
            if self._follower.turn(batch):
                self.steps.append(self._open)
            self._open = {}

    def add(self, event: ScriptEvent) -> None:
        """Keep an event: of the same ones, that of the largest tensor that the loader gave."""
        former = self._open.get(event.key)
        if former is None or (event.is_loaded, event.nbytes) > (former.is_loaded, former.nbytes):
            self._open[event.key] = event


class _Follower:
    """Observes the main thread from its first call of a module on; a step begins where a new batch is used.

    Parameters
    ----------
    steps : ObservedSteps
        Of the loader.
    count : int
        Steps to observe.

    Attributes
    ----------
    batch : int
        The number of the last batch that was used.
    """

    def __init__(self, steps: ObservedSteps, count: int) -> None:
        self._steps, self._left, self.batch = steps, count, 0
        self._is_whole = False
        self._hook = torch.nn.modules.module.register_module_forward_pre_hook(self._follow)

    def turn(self, batch: int) -> bool:
        """A new batch is used; whether the step before was observed from its beginning, and counts."""
        counts = self._is_whole and self._left > 0
        self._left -= counts
        self._is_whole, self.batch = self.batch > 0, batch
        return counts

    def end(self) -> None:
        """Observe nothing more, if this is the main thread. Idempotent."""
        if threading.current_thread() is threading.main_thread():
            _calls.stop(self._steps)
            self._hook.remove()

    def _follow(self, _module: object, _given: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if self._left > 0:
            _calls.start(self._steps)
        else:
            self.end()


class _TorchCalls(TorchFunctionMode):
    """Sees each call of torch in one thread while steps are observed; there is one object, :data:`_calls`."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[ObservedSteps] = []
        self.tensors = KnownTensors()
        self._is_entered, self._count, self._collect_began = False, 0, 0.0
        self._thread: threading.Thread | None = None
        self._stance: AbstractContextManager[object] | None = None
        self._functions: dict[types.CodeType, EventKind | Literal["backward"]] = {}

    # begin and end

    def start(self, steps: ObservedSteps) -> None:
        """Observe ``steps`` in this thread, unless another thread is observed, or the script has a mode of its own."""
        thread = threading.current_thread()
        if steps in self._steps or (self._steps and self._thread is not thread):
            return
        if not self._steps:
            if (not self._is_entered and not _may_enter()) or not _fits_uncompiled():
                return
            self._thread, self._count = thread, 0
            self.tensors.has_device = torch.accelerator.is_available()
            self._functions = self._functions or _find_functions()
            if not self._is_entered:
                self.__enter__()  # type: ignore[no-untyped-call]  # torch has no types for it
                self._is_entered = True
            if "torch._dynamo" in sys.modules:  # else compiled functions would be compiled anew
                self._stance = torch.compiler.set_stance("force_eager")
            if sys.getprofile() is None:
                sys.setprofile(self._note_function)
        self._steps.append(steps)

    def stop(self, steps: ObservedSteps) -> bool:
        """Observe ``steps`` no longer; whether they were observed."""
        if steps not in self._steps:
            return False
        self._steps.remove(steps)
        if not self._steps:
            self._leave()
        return True

    def stop_left(self, steps: ObservedSteps) -> None:
        """Observe no longer what was left when a step of ``steps`` begins."""
        for each in list(self._steps):
            if each is not steps and each.is_left():
                self.stop(each)

    def stop_all(self) -> None:
        """The thread forks, or does something else: its steps are over."""
        if self._thread is threading.current_thread():
            for steps in list(self._steps):
                steps.end()

    def _leave(self) -> None:
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None
        if self._thread is not threading.current_thread():
            return
        if sys.getprofile() == self._note_function:
            sys.setprofile(None)
        if self._is_entered and _list_modes()[-1:] == [self]:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # as above
            self._is_entered = False

    # calls of torch

    def __torch_function__(
        self, func: Callable[..., object], types: Iterable[type], args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:  # fmt: skip
        named, begun = dict(kwargs or {}), time.perf_counter()
        result = func(*args, **named)
        seconds = time.perf_counter() - begun
        if self._steps:
            try:
                with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  # as torch's documentation does
                    name = getattr(func, "__name__", "")
                    result = self.tensors.separate(name, args, result)
                    self._note(name, args, named, result, seconds)
            except Exception:  # an object of the user may not like to be looked at: the script goes on
                _logger.debug("a call of torch could not be seen", exc_info=True)
        return result

    def _note(
        self, name: str, args: tuple[object, ...], named: Mapping[str, object], result: object, seconds: float
    ) -> None:
        given = list_tensors((args, named))
        self._count += 1
        if self._count > _MOST_CALLS:
            self.stop_all()
            return
        known = [self.tensors.describe(tensor) for tensor in given]
        for steps in self._steps:
            steps.note_use(max((each.batch for each in known), default=0))
        if name == "backward":
            self._note_backward()
        elif name in _MOVES and given:
            self._note_move(name, args, named, result, seconds)
        elif name in _WAITS and known and known[0].is_on_device:
            self._emit("wait")
        elif name == "tensor" and args:
            self._note_tensor(args[0], result)
        elif name in _JOINS and any(each.batch and not each.is_on_device for each in known):
            self._emit("join")
        if name not in _MOVES and not name.endswith("_like"):
            self.tensors.spread(given, known, result, seconds)

    def _note_move(
        self, name: str, args: tuple[object, ...], named: Mapping[str, object], result: object, seconds: float
    ) -> None:
        """Note ``Tensor.to``, ``Tensor.cuda``, ``Tensor.cpu`` and the like."""
        tensor = args[0]
        assert isinstance(tensor, torch.Tensor), "a method of one"
        assert isinstance(result, torch.Tensor), "as above"
        known = self.tensors.describe(tensor)
        moves = self.tensors.goes_to_device(name, args, named, result, known)
        non_blocking = bool(named.get("non_blocking")) or any(each is True for each in args[1:4])
        if moves and not known.is_on_device:
            cast = known.cast or find_cast(tensor, result, seconds)
            if cast is not None:
                self._keep(ScriptEvent("cast", cast.line, cast.text, cast=cast))
            self._emit("copy", is_loaded=known.is_loaded, nbytes=tensor.nbytes, non_blocking=non_blocking)
        elif known.is_on_device and not moves and not non_blocking:
            self._emit("wait")
        if moves or known.is_on_device:
            self.tensors.move(tensor, result, is_on_device=moves)
        else:
            self.tensors.spread([tensor], [known], result, seconds)

    def _note_tensor(self, given: object, result: object) -> None:
        """``torch.tensor`` of an array that the loader gave, or that was just made."""
        if (
            not isinstance(result, torch.Tensor)
            or result.nbytes < _LEAST_NBYTES
            or not find_copied_arrays(given, result)
        ):
            return
        frame = find_caller()
        text = "" if frame is None else text_of(frame, most=-1)
        is_new = text.partition("(")[2].startswith(("np.", "numpy."))
        if is_new or not isinstance(given, np.ndarray) or self.tensors.is_loaded(given):
            self._emit("tensor")

    def _note_backward(self) -> None:
        for steps in self._steps:
            steps.is_training = True

    # other calls

    def _note_function(self, frame: types.FrameType, event: str, argument: object) -> None:
        if event == "call":
            kind, caller = self._functions.get(frame.f_code), frame.f_back
            if kind == "backward":
                self._note_backward()
            elif kind is not None and caller is not None and is_user_file(caller.f_code.co_filename):
                self._keep(ScriptEvent(kind, line_of(caller), text_of(caller)))
        elif argument is gc.collect and event == "c_call":
            self._collect_began = time.perf_counter()
        elif argument is gc.collect and event == "c_return" and is_user_file(frame.f_code.co_filename):
            seconds = time.perf_counter() - self._collect_began
            self._keep(ScriptEvent("cleanup", line_of(frame), text_of(frame), seconds=seconds))

    def _emit(self, kind: EventKind, *, is_loaded: bool = False, nbytes: int = 0, non_blocking: bool = False) -> None:
        frame = find_caller()
        if frame is not None:
            self._keep(ScriptEvent(kind, line_of(frame), text_of(frame), is_loaded, nbytes, non_blocking))

    def _keep(self, event: ScriptEvent) -> None:
        for steps in self._steps:
            steps.add(event)


def note_batch(batch: object, number: int) -> None:
    """Note that a loader gave its ``number``th batch, from 1: of this step, or a later one if fetched ahead."""
    _calls.tensors.note_batch(batch, number)


def _may_enter() -> bool:
    """Return whether no mode but that of ``torch.set_default_device`` is active: others may end within the step."""
    default = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    return all(mode is default for mode in _list_modes())


def _fits_uncompiled() -> bool:
    """Return whether memory of the device is left for a step that runs uncompiled and keeps more of its values."""
    counters: Mapping[str, object] | None = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if not counters or not counters.get("frames") or not torch.cuda.is_available():
        return True
    return torch.cuda.max_memory_allocated() * _MORE_MEMORY <= torch.cuda.mem_get_info()[1]


def _list_modes() -> list[TorchFunctionMode]:
    """Return the modes of this thread, the innermost last."""
    modes: Callable[[], list[TorchFunctionMode]] = torch.overrides._get_current_function_mode_stack  # noqa: SLF001  # there is no other way
    return modes()


def _find_functions() -> dict[types.CodeType, EventKind | Literal["backward"]]:
    """Return the code of functions of Python that a mode does not see."""
    found: dict[types.CodeType, EventKind | Literal["backward"]] = {}
    kinds: list[tuple[EventKind | Literal["backward"], Iterable[str]]] = [
        ("cleanup", _CLEANUPS), ("wait", _BARRIERS), ("backward", ["torch.autograd.backward"]),
    ]  # fmt: skip
    for kind, names in kinds:
        for name in names:
            value: object = torch
            for part in name.split(".")[1:]:
                value = getattr(value, part, None)
            code = getattr(value, "__code__", None)
            if code is not None:
                found[code] = kind
    return found


_calls: Final = _TorchCalls()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_calls.stop_all)  # a worker process must not observe
