"""Events of a training step, and the user's lines where they happen."""

from __future__ import annotations

import inspect
import linecache
import types
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch

from penstock.datasets.user_code import is_user_file
from penstock.doctor.watching.steps.source import SourceLine, find_position, read_text

__all__ = ["Cast", "EventKind", "ScriptEvent", "find_caller", "line_of", "text_of"]

EventKind = Literal["copy", "cast", "wait", "cleanup", "tensor", "join"]
_LOADERS: Final = "penstock.doctor.watching.loaders.watched_iterators"
_PASSED: Final = (
    "penstock.doctor.watching.steps.", "torch._tensor", "torch.overrides", "torch.functional", "torch.utils.data.",
    "torch.nn.utils.rnn", "torch.utils.tensorboard", "tensorboardX", "tqdm", "logging", "numpy",
)  # fmt: skip
"""Modules between the user's line and torch that do what the line says."""
_TEXT: Final = 60


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast of a tensor on the host to a larger type."""

    line: SourceLine  # where
    text: str  # the source
    shape: tuple[int, ...]  # of the tensor
    before: torch.dtype
    after: torch.dtype
    """``before`` and ``after``: of its elements."""
    seconds: float  # that it took

    def count_bytes(self) -> tuple[int, int]:
        """Return the number of bytes before and after the cast."""
        count = int(np.prod(self.shape, dtype=np.int64))
        return count * self.before.itemsize, count * self.after.itemsize


@dataclass(frozen=True, slots=True)
class ScriptEvent:
    """Something that a training step does."""

    kind: EventKind
    """One of "copy": to the device. "cast": of a batch that is copied to the device afterwards. "wait": for the
    device. "cleanup": of memory. "tensor": ``torch.tensor`` of an array. "join": samples become a batch."""
    line: SourceLine  # where
    text: str  # the source
    is_loaded: bool = False
    """Whether it is done to a tensor as the loader gave it, so that it is page-locked if the loader does so."""
    nbytes: int = 0  # of what it is done to
    non_blocking: bool = False  # of a copy
    cast: Cast | None = None  # of a cast
    seconds: float = 0.0  # that a collection of garbage took

    @property
    def key(self) -> tuple[str, SourceLine, str]:
        """What makes two events the same."""
        return self.kind, self.line, self.text


def find_caller() -> types.FrameType | None:
    """Return the user's function that asks torch for something.

    It is None if a library does, or a loader that makes a batch.
    """
    frame = inspect.currentframe()
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        if not str(frame.f_globals.get("__name__", "")).startswith(_PASSED):
            return None
        frame = frame.f_back
    outer = frame
    while outer is not None:
        if outer.f_globals.get("__name__") == _LOADERS:
            return None
        outer = outer.f_back
    return frame


def line_of(frame: types.FrameType) -> SourceLine:
    """Return where a function is now."""
    line = find_position(frame)[0]
    return SourceLine.of(frame.f_code, line if line > 0 else frame.f_lineno)


def text_of(frame: types.FrameType, most: int = _TEXT) -> str:
    """Return the source of what a function evaluates now, of at most so many characters; -1: all."""
    text = read_text(frame.f_code.co_filename, find_position(frame))
    text = text or linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return text if len(text) <= most or most < 0 else f"{text[: most - 3]}..."
