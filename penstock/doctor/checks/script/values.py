"""What is known of the values in a training step, and the events that matter to the rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from penstock.doctor.watching.batch_layout import BatchParts

__all__ = ["EventKind", "ScriptEvent", "SourceLine", "Value", "join_values"]

EventKind = Literal["copy", "cast", "wait", "cleanup", "tensor", "join"]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the script.

    Parameters
    ----------
    file : str
        Its path.
    line : int
        Its number, from 1.
    function : str
        The function that it is in; empty at the top level.
    """

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        shown = f"{Path(self.file).name}, line {self.line}"
        return f"{self.function} ({shown})" if self.function else shown


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a value that comes from a batch.

    Parameters
    ----------
    where : {"host", "device", "parts"}
        In which memory its tensors are. "parts" is a tuple whose elements differ.
    layout : BatchParts, optional
        Of a batch or a part of it: its types and sizes before a cast.
    is_loaded : bool
        Whether it is what the loader gave, so that it is page-locked if the loader does so.
    is_tensor : bool
        Whether it is certainly a tensor.
    cast : SourceLine, optional
        Where its elements became larger.
    cast_to : str
        The type that they have since.
    parts : tuple of (Value or None)
        The elements of a tuple.
    """

    where: Literal["host", "device", "parts"]
    layout: BatchParts | None = None
    is_loaded: bool = False
    is_tensor: bool = False
    cast: SourceLine | None = None
    cast_to: str = ""
    parts: tuple[Value | None, ...] = ()

    @property
    def is_on_device(self) -> bool:
        """Whether some of it is on the device."""
        return self.where == "device" or any(part is not None and part.is_on_device for part in self.parts)

    @property
    def is_device_tensor(self) -> bool:
        """Whether it is certainly a tensor on the device."""
        return self.where == "device" and self.is_tensor

    def element(self) -> Value | None:
        """One of its elements, whichever it is."""
        if self.where == "parts":
            joined: Value | None = None
            for part in self.parts:
                joined = join_values(joined, part)
            return joined
        if self.layout is None or self.layout.is_leaf or self.cast is not None:
            return replace(self, is_loaded=self.is_loaded and self.layout is not None)
        return self.of_layout(self.layout.any_part())

    def part(self, name: object) -> Value | None:
        """The part of a key, a position or an attribute."""
        if self.where == "parts":
            is_position = isinstance(name, int) and -len(self.parts) <= name < len(self.parts)
            return self.parts[name] if is_position and isinstance(name, int) else None
        if self.layout is None or self.layout.is_leaf or self.layout.kind == "any" or self.cast is not None:
            return self.element()
        part = self.of_layout(self.layout.part(name))
        return replace(part, is_loaded=False) if self.layout.kind == "object" else part  # it may not be page-locked

    def of_layout(self, layout: BatchParts | None) -> Value:
        """The same with another layout."""
        is_tensor = layout is not None and layout.kind == "tensor"
        return replace(self, layout=layout, is_tensor=is_tensor or (self.is_tensor and layout is self.layout))


def join_values(first: Value | None, second: Value | None) -> Value | None:
    """What is known after two branches: rather that a copy was made than that none was."""
    if first is None or second is None or first == second:
        return second if first is None else first
    if first.is_on_device != second.is_on_device:
        return first if first.is_on_device else second
    if first.where == second.where and first.where != "parts":
        return replace(
            first, layout=first.layout if first.layout == second.layout else None,
            is_loaded=first.is_loaded and second.is_loaded, is_tensor=first.is_tensor and second.is_tensor,
            cast=first.cast if first.cast == second.cast else None,
        )  # fmt: skip
    return first


@dataclass(frozen=True, slots=True)
class ScriptEvent:
    """Something that a training step does.

    Parameters
    ----------
    kind : str
        "copy": to the device. "cast": of a batch that is copied to the device afterwards. "wait": for the device.
        "cleanup": of memory. "tensor": ``torch.tensor`` of an array. "join": samples become a batch.
    line : SourceLine
        Where.
    text : str
        The source.
    is_each_step : bool
        Whether it happens in each step, under no condition.
    value : Value, optional
        What it is done to.
    non_blocking : bool, optional
        Of a copy; None if it is not known.
    """

    kind: EventKind
    line: SourceLine
    text: str
    is_each_step: bool
    value: Value | None = None
    non_blocking: bool | None = None
