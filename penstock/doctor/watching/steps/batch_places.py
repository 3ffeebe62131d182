"""Where a script takes the batches of a loader, and what it does in a step with them.

::

    script          for images, labels in loader: ...          train.py, line 31
    loader          __next__ ── LoaderWatch.next ── note: the functions that ask for an epoch's first batch
                                                 ── begin_step, end_step: two steps of the warm-up are observed

Nothing of the script is kept but lines. A place that was seen before costs one look at a few frames.
"""

from __future__ import annotations

import gc
import inspect
import itertools
import logging
import sys
import threading
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.datasets.user_code import is_user_file
from penstock.doctor.watching.batch_layout import BatchParts, describe_batch
from penstock.doctor.watching.steps.source import SourceLine

if TYPE_CHECKING:
    from penstock.doctor.watching.steps.torch_calls import ObservedSteps

__all__ = ["BatchPlaces", "Taking"]

_logger = logging.getLogger(__name__)
_MOST_PLACES: Final = 8
_MOST_FRAMES: Final = 200
_PASSING: Final = (
    "penstock.", "torch.utils.data.", "queue", "threading", "tqdm.", "rich.progress", "alive_progress.",
    "fastprogress.",
)  # fmt: skip
_COPYING: Final = ("penstock.torch.device",)
_SEEN_STEPS: Final = (2, 3)
_MOST_LOOKS: Final = 20


@dataclass(frozen=True, slots=True)
class Taking:
    """How batches are taken at one place."""

    line: SourceLine  # where
    text: str  # the expression
    is_cycled: bool  # whether batches come through ``itertools.cycle``


class BatchPlaces:
    """Where the batches of one loader are taken.

    Attributes
    ----------
    takings : list of Taking
        How the user's functions take them.
    files : set of str
        The source files of the user's functions that take batches, and of those that called them.
    passes_library : bool
        Whether batches pass a library's function before they come to one of the user's.
    layout : BatchParts, optional
        Of the first batch.
    epoch_starts_ns : list of int
        How long the start of each epoch took, workers included.
    made : SourceLine, optional
        Where the loader is made, if it is made anew each time, of the same dataset.
    steps : ObservedSteps, optional
        What was seen in steps; None before the first, and where torch is not imported.
    """

    def __init__(self) -> None:
        self.takings: list[Taking] = []
        self.files: set[str] = set()
        self.passes_library = False
        self.layout: BatchParts | None = None
        self.epoch_starts_ns: list[int] = []
        self.made: SourceLine | None = None
        self.steps: ObservedSteps | None = None
        self._seen: set[tuple[types.CodeType, int]] = set()

    def note(self, iterator: object, started_ns: int) -> None:
        """Look at the functions that ask ``iterator``, whose start took so long, for an epoch's first batch now."""
        self.epoch_starts_ns.append(started_ns)
        if "torch" not in sys.modules:  # no rule applies
            return
        try:
            self._look(iterator, _list_frames(inspect.currentframe()))
        except Exception:  # an object of the user may not like to be looked at: the script goes on
            _logger.debug("the place of a batch could not be seen", exc_info=True)

    def note_batch(self, batch: object) -> None:
        """Keep the layout of the first batch."""
        try:
            self.layout = describe_batch(batch)
        except Exception:  # as above
            _logger.debug("a batch could not be described", exc_info=True)
            self.layout = BatchParts("other")

    def begin_step(self, batch: object, number: int) -> None:
        """The script gets ``batch``, the ``number``th of the loader, from 1."""
        if "torch" not in sys.modules:
            return
        from penstock.doctor.watching.steps.torch_calls import ObservedSteps, note_batch

        try:
            self.steps = self.steps or ObservedSteps()
            self.steps.end_others()
            if number > _MOST_LOOKS:
                return
            if threading.current_thread() is not threading.main_thread():
                self.steps.follow_main_thread(len(_SEEN_STEPS))
                note_batch(batch, number)
            elif number <= _SEEN_STEPS[-1]:
                note_batch(batch, number)
                if number in _SEEN_STEPS:
                    self.steps.begin()
        except Exception:  # as above
            _logger.debug("a step could not be seen", exc_info=True)

    def end_step(self) -> None:
        """The next batch is asked for."""
        if self.steps is not None:
            self.steps.end()

    def _look(self, iterator: object, frames: list[types.FrameType]) -> None:
        from penstock.doctor.watching.steps.events import line_of, text_of

        users = [frame for frame in frames if is_user_file(frame.f_code.co_filename)][:_MOST_PLACES]
        if not users or (users[0].f_code, users[0].f_lasti) in self._seen or len(self._seen) >= _MOST_PLACES:
            return
        self._seen.add((users[0].f_code, users[0].f_lasti))
        self.files |= {frame.f_code.co_filename for frame in users}
        passes_library = not all(_passes_batches(frame) for frame in frames[: frames.index(users[0])])
        self.passes_library = self.passes_library or passes_library
        if not passes_library:
            is_cycled = any(type(holder) is itertools.cycle for holder in gc.get_referrers(iterator))
            self.takings.append(Taking(line_of(users[0]), text_of(users[0]), is_cycled))


def _list_frames(frame: types.FrameType | None) -> list[types.FrameType]:
    """Return the functions that run, from the innermost outwards."""
    frames: list[types.FrameType] = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _passes_batches(frame: types.FrameType) -> bool:
    """Whether a function between the script and a batch changes nothing: of the doctor, the loader, a progress bar."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_PASSING) and not module.startswith(_COPYING)
