"""Which stage a stack belongs to: classified by names, from its innermost frame outwards.

Names are those of :mod:`.stage_names`. Where a thread waits without using a processor, in a function
that opens or reads files or in a call that only waits, it reads. Used by :mod:`.stack_sampling`.
"""

from __future__ import annotations

import ast
import dis
import linecache
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from penstock.doctor.watching.stage_names import (
    Called,
    DataStage,
    is_copy_call,
    is_copy_name,
    stage_of_call,
    stage_of_module,
    stage_of_name,
)
from penstock.workers.stack_frames import walk_stack

__all__ = ["Kind", "classify"]

Kind = Literal["sample", "step"]

_MAX_FRAMES: Final = 64
_LIBRARIES: Final = ("torch.utils.data._utils", "penstock.workers", "penstock.doctor", "penstock.datasets")
"""Where a walk outwards ends: what is beyond does not belong to the sample."""
_FILE_NAMES: Final = frozenset(
    {
        "open", "read", "readinto", "pread", "read_bytes", "read_text", "fromfile", "memmap", "imread", "recv",
        "urlopen", "load",
    }
)  # fmt: skip


def classify(frame: types.FrameType, kind: Kind, *, waits: bool = False) -> str:
    """Return the stage of a stack.

    Parameters
    ----------
    frame : frame
        The innermost.
    kind : {"sample", "step"}
        Of the thread's activity.
    waits : bool
        Whether the thread has used no processor lately.

    Returns
    -------
    str
        For a sample "read", "decode" or "augment"; for a step "copy" or "step".
    """
    if kind == "sample":
        return _classify_sample(frame, waits=waits)
    return "copy" if any(_facts_of(place).is_copy for place in walk_stack(frame, _MAX_FRAMES)) else "step"


def _classify_sample(frame: types.FrameType, *, waits: bool) -> DataStage:
    reads_files = False
    facts = _facts_of(frame)
    stage = None if facts.called is None else stage_of_call(facts.called, waits=waits)
    if stage is not None:
        return stage
    computes = facts.called is not None and facts.called.is_computation and not waits
    is_waiting = facts.called is not None and facts.called.is_waiting
    for place in walk_stack(frame, _MAX_FRAMES):
        facts = _facts_of(place)
        if facts.is_boundary:
            break
        if facts.module_stage is not None:
            return "read" if waits and facts.module_stage == "decode" else facts.module_stage
        if facts.name_stages:
            return _choose(facts.name_stages, waits=waits, computes=computes)
        reads_files = reads_files or facts.reads_files
    return "read" if waits and (reads_files or is_waiting) else "augment"


def _choose(stages: tuple[DataStage, ...], *, waits: bool, computes: bool) -> DataStage:
    """Return the stage of a function whose name speaks of ``stages``."""
    if waits and "read" in stages:
        return "read"
    for stage in ("decode", "augment"):
        if stage in stages:
            return stage
    return "augment" if computes else "read"


@dataclass(frozen=True, slots=True)
class _FrameFacts:
    """What is known of one place in the code."""

    called: Called | None
    module_stage: DataStage | None
    name_stages: tuple[DataStage, ...]
    reads_files: bool
    is_copy: bool
    is_boundary: bool


_facts: dict[tuple[int, int], tuple[_FrameFacts, types.CodeType]] = {}
"""By the identity of the code, which is kept: to hash code takes microseconds."""
_MAX_FACTS: Final = 20_000


def _facts_of(frame: types.FrameType) -> _FrameFacts:
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    known = _facts.get(key)
    if known is not None:
        return known[0]
    if len(_facts) >= _MAX_FACTS:
        _facts.clear()
    facts = _find_facts(frame)
    _facts[key] = facts, code
    return facts


def _find_facts(frame: types.FrameType) -> _FrameFacts:
    code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
    called = _find_called(frame)
    is_own = _is_library(module)
    qualified = getattr(code, "co_qualname", code.co_name)
    return _FrameFacts(
        called,
        None if is_own else stage_of_module(module, code.co_name),
        () if is_own else stage_of_name(qualified),
        not _FILE_NAMES.isdisjoint(code.co_names),
        is_copy_name(code.co_name) or (called is not None and is_copy_call(called)),
        is_own,
    )


def _is_library(module: str) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in _LIBRARIES)


def _find_called(frame: types.FrameType) -> Called | None:
    """The call that the frame's present instruction makes; None if it makes none, or there is no source."""
    code, at = frame.f_code, frame.f_lasti
    while at > 0 and dis.opname[code.co_code[at]] == "CACHE":  # behind the call of a function of Python
        at -= 2
    if at < 0 or not dis.opname[code.co_code[at]].startswith(("CALL", "PRECALL")):
        return None
    try:
        node = ast.parse(_read_source(code, at), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.Call):
        return None
    arguments = ", ".join([*map(ast.unparse, node.args), *map(ast.unparse, node.keywords)])
    return Called(_resolve(node.func, frame.f_globals), arguments)


def _read_source(code: types.CodeType, at: int) -> str:
    """Return the source of the expression that an instruction belongs to; empty if there is none."""
    line, end_line, column, end_column = list(code.co_positions())[at // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return ""
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(line, end_line + 1)]
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    return b"".join(lines).decode().strip()


def _resolve(node: ast.expr, names: dict[str, object]) -> str:
    """The full name of a called expression, as far as modules are known; ``.name`` for a method of any object."""
    chain: list[str] = []
    while isinstance(node, ast.Attribute):
        chain.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return "." + ".".join(chain[-1:])
    value = names.get(node.id)
    if isinstance(value, types.ModuleType):
        return ".".join([value.__name__, *chain])
    if chain:
        return "." + chain[-1]
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return f"{_module_of(value)}{value.__name__}"
    return node.id


def _module_of(value: Callable[..., object]) -> str:
    module = getattr(value, "__module__", None)
    return f"{module}." if isinstance(module, str) and module != "builtins" else ""
