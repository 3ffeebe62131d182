"""Where a script takes the batches of a loader: the calling functions, seen when an epoch's first batch is asked for.

::

    script          for images, labels in loader: ...          train.py, line 31
    loader          __next__ ── LoaderWatch.next ── BatchPlaces.note: code, position and the types of variables

Nothing of the script is kept alive but its code, functions and global variables: of objects in local variables, only
their classes are kept. A place that was seen before costs one look at a few frames. The source is read when the script
has ended (:mod:`penstock.doctor.checks.script.loops`).
"""

from __future__ import annotations

import inspect
import itertools
import logging
import sys
import threading
import types
from dataclasses import dataclass
from typing import Any, Final

from penstock.datasets.user_code import is_user_file
from penstock.doctor.checks.script.known_objects import MOST_NAMES, KnownObject, describe_object
from penstock.doctor.checks.script.step_calls import StepCalls, find_tensors
from penstock.doctor.watching.batch_layout import BatchParts, describe_batch
from penstock.workers.stack_frames import current_frames

__all__ = ["BatchPlaces", "Place"]

_logger = logging.getLogger(__name__)
_MOST_STACKS: Final = 8
_MOST_FRAMES: Final = 200
_MOST_PLACES: Final = 8
_PASSING: Final = (
    "penstock.", "torch.utils.data.", "queue", "threading", "tqdm.", "rich.progress", "alive_progress.",
    "fastprogress.",
)  # fmt: skip
_DEPTH: Final = 3
_SEEN_STEPS: Final = (2, 3)
_MOST_LOOKS: Final = 20
_WAITING: Final = ("queue", "threading")
_COPYING: Final = ("penstock.torch.device",)


@dataclass(frozen=True, slots=True)
class Place:
    """One function of the user on the way to a batch.

    Parameters
    ----------
    code : code
        Of the function.
    namespace : dict
        Its global variables.
    position : tuple of int
        First line, last line, first column, last column of the expression that is evaluated; -1 where unknown.
    names : dict of str to KnownObject
        Local variables, and global ones that are the loader.
    is_direct : bool
        Whether no function of a library was between this function and the next inner one of the user, or the loader.
    """

    code: types.CodeType
    namespace: dict[str, Any]
    position: tuple[int, int, int, int]
    names: dict[str, KnownObject]
    is_direct: bool


class BatchPlaces:
    """Where the batches of one loader are taken.

    Attributes
    ----------
    stacks : list of tuple of Place
        For each place, the user's functions from the innermost outwards.
    layout : BatchParts, optional
        Of the first batch.
    epoch_starts_ns : list of int
        How long the start of each epoch took, workers included.
    calls : StepCalls
        The user's functions that are called within a step.
    uses_device : bool
        Whether the function that takes the batches, or a library's that passes them, was seen with tensors on a device.
    """

    def __init__(self) -> None:
        self.stacks: list[tuple[Place, ...]] = []
        self.layout: BatchParts | None = None
        self.epoch_starts_ns: list[int] = []
        self.calls = StepCalls()
        self.uses_device = False
        self._has_waiting = False
        self._seen: set[tuple[types.CodeType, int]] = set()

    def note(self, loader: Any, started_ns: int) -> None:
        """Look at the functions that ask for an epoch's first batch now.

        Parameters
        ----------
        loader : DataLoader
            The loader.
        started_ns : int
            How long the start of the epoch took.
        """
        self.epoch_starts_ns.append(started_ns)
        try:
            self._look(loader, _list_frames(inspect.currentframe()))
        except Exception:  # an object of the user may not like to be looked at: the script goes on
            _logger.debug("the place of a batch could not be seen", exc_info=True)

    def note_batch(self, batch: Any) -> None:
        """Keep the layout of the first batch."""
        try:
            self.layout = describe_batch(batch)
        except Exception:  # as above
            _logger.debug("a batch could not be described", exc_info=True)
            self.layout = BatchParts("other")

    def begin_step(self, loader: Any, batch: Any, number: int) -> None:
        """The script gets ``batch``, the ``number``th of ``loader``, from 1."""
        if number > _MOST_LOOKS:
            return
        try:
            self._look_at_waiting_thread(loader)
            if number <= _SEEN_STEPS[-1]:
                self.calls.note_batch(batch)
            if number in _SEEN_STEPS:
                passing = _list_passing(_list_frames(inspect.currentframe()))
                self.uses_device = self.uses_device or any(map(_holds_device_tensors, passing))
                del passing  # it has this frame: a cycle
                self.calls.begin()
        except Exception:  # as above
            _logger.debug("a step could not be seen", exc_info=True)

    def end_step(self, *, is_whole: bool = True) -> None:
        """The next batch is asked for; ``is_whole``: by the loop that took the one before."""
        self.calls.end(is_whole=is_whole)

    def _look_at_waiting_thread(self, loader: Any) -> None:
        """Where a thread takes batches for the main one, look at the place where that one waits for them."""
        main = threading.main_thread().ident
        if self._has_waiting or main is None or main == threading.get_ident():
            return
        frames = _list_frames(current_frames().get(main))
        if frames and str(frames[0].f_globals.get("__name__", "")) in _WAITING:
            self._has_waiting = True
            self._look(loader, frames)

    def _look(self, loader: Any, frames: list[types.FrameType]) -> None:
        at = next((number for number, each in enumerate(frames) if is_user_file(each.f_code.co_filename)), None)
        if at is None or len(self.stacks) >= _MOST_STACKS:
            return
        key = (frames[at].f_code, frames[at].f_lasti)
        if key not in self._seen:
            self._seen.add(key)
            self.stacks.append(tuple(_list_places(frames, loader)))


def _list_frames(frame: types.FrameType | None) -> list[types.FrameType]:
    """The functions that run, from the innermost outwards."""
    frames: list[types.FrameType] = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _list_passing(frames: list[types.FrameType]) -> list[types.FrameType]:
    """The innermost function of the user, and functions between it and the loader that may move batches."""
    at = next((number for number, each in enumerate(frames) if is_user_file(each.f_code.co_filename)), None)
    inner = [] if at is None else frames[: at + 1]
    return [frame for frame in inner if not _passes_batches(frame)]


def _holds_device_tensors(frame: types.FrameType) -> bool:
    """Whether a variable of a function, or an attribute of its object, is on a device."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.accelerator.is_available():
        return False
    values = _read_locals(frame)
    attributes = getattr(values.get("self"), "__dict__", None)
    tensors = find_tensors([values, attributes if isinstance(attributes, dict) else {}], _DEPTH)
    return any(each.device.type != "cpu" for each in itertools.islice(tensors, MOST_NAMES))


def _list_places(frames: list[types.FrameType], loader: Any) -> list[Place]:
    places, is_direct = [], True
    for frame in frames:
        code = frame.f_code
        if is_user_file(code.co_filename):
            names = {name: describe_object(value, loader) for name, value in frame.f_globals.items() if value is loader}
            if code.co_name != "<module>":
                names |= _describe_locals(frame, loader)
            places.append(Place(code, frame.f_globals, _find_position(frame), names, is_direct))
            is_direct = True
            if len(places) == _MOST_PLACES:
                break
        elif not _passes_batches(frame):
            is_direct = False
    return places


def _passes_batches(frame: types.FrameType) -> bool:
    """Whether a function between the script and a batch changes nothing: of the doctor, the loader, a progress bar."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_PASSING) and not module.startswith(_COPYING)


def _find_position(frame: types.FrameType) -> tuple[int, int, int, int]:
    positions = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    first, last, column, last_column = (-1 if value is None else value for value in positions)
    return first, last, column, last_column


def _describe_locals(frame: types.FrameType, loader: Any) -> dict[str, KnownObject]:
    values = itertools.islice(_read_locals(frame).items(), MOST_NAMES)
    return {name: describe_object(value, loader) for name, value in values}


def _read_locals(frame: types.FrameType) -> dict[str, Any]:
    values = frame.f_locals
    if not (frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(values) is dict):
        return dict(values)
    copied = dict(values)
    values.clear()  # before Python 3.13 this copy would keep the values alive until the function ends
    return copied
