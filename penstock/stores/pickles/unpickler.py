"""Reads pickles of plain values, and refuses by name whatever else a pickle asks for; nothing is imported or called.

::

    bytes ──_check: opcodes of protocols 2 to 5, bounds──> pickle.Unpickler ──> numbers, text, bytes, containers, arrays
                 └ GLOBAL os.system ──> StoreFormatError: names it; nothing ran

``pickle.Unpickler`` makes the values. Its ``find_class`` returns the functions of :mod:`.pickles.globals` alone. It
trusts a pickle in other ways: it allocates memory for any memo index and any length, and hashes nested tuples.
Therefore ``pickletools`` reads the opcodes first. What plain values do not need, and what would cost far more than the
bytes of the pickle, is refused before anything is made.
"""

from __future__ import annotations

import functools
import io
import pickle
import pickletools
from collections.abc import Sequence, Sized
from typing import Any, Final

from penstock.errors import StoreFormatError
from penstock.stores.pickles.globals import (
    GLOBALS,
    PickledArray,
    PickledDtype,
    PickledGlobal,
    check_key,
    make_refusal,
)

__all__ = ["is_pickle", "restricted_loads"]

_MAX_CONTAINERS: Final = 1 << 20
_MAX_INTEGER_BITS: Final = 127
_LEAST_MEMO: Final = 1 << 16
_REFUSED: Final = {
    "INST": "an instance of a class",
    "OBJ": "an instance of a class",
    "NEWOBJ": "an instance of a class",
    "NEWOBJ_EX": "an instance of a class",
    "PERSID": "an object outside the pickle",
    "BINPERSID": "an object outside the pickle",
    "EXT1": "an extension of copyreg",
    "EXT2": "an extension of copyreg",
    "EXT4": "an extension of copyreg",
    "NEXT_BUFFER": "a buffer outside the pickle",
    "READONLY_BUFFER": "a buffer outside the pickle",
} | dict.fromkeys(
    ("INT", "LONG", "FLOAT", "STRING", "UNICODE", "LIST", "DICT", "GET", "PUT"), "an operation of protocol 0"
)
_CONTAINERS: Final = frozenset({"EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "FROZENSET", "REDUCE"})
_GETS: Final = frozenset({"BINGET", "LONG_BINGET"})
_PUTS: Final = frozenset({"BINPUT", "LONG_BINPUT", "MEMOIZE"})
_MARK: Final = pickletools.markobject
_TO_FINISH: Final = frozenset({"GLOBAL", "STACK_GLOBAL", "BYTEARRAY8"})

_DAMAGE: Final = (
    pickle.UnpicklingError, EOFError, AttributeError, LookupError, TypeError, OverflowError, RecursionError, ValueError,
    Warning,  # of pickletools, which takes a backslash in a name for an escape; raised if warnings are errors
)  # fmt: skip


def is_pickle(head: bytes | memoryview) -> bool:
    """Whether a value begins as a pickle of protocols 2 to 5 does."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def restricted_loads(content: bytes | memoryview) -> Any:
    """The value of a pickle of plain values.

    Parameters
    ----------
    content : bytes or memoryview
        The pickle, of protocol 2 to 5.

    Returns
    -------
    object
        None, bool, int, float, str, bytes (bytearrays, too), read-only NumPy array; or tuple, list, dict, set or
        frozenset of such values. A NumPy scalar is a Python number. Byte strings of Python 2 are bytes.

    Raises
    ------
    StoreFormatError
        If the pickle needs anything else; the message names it.
    ValueError
        If it is damaged.
    """
    if not is_pickle(content):
        raise ValueError("it must be a pickle of protocol 2 to 5")
    whole = bytes(content)
    try:
        is_finished = _check(whole)
        value = _Unpickler(whole).load()
        return value if is_finished else _finish(value, {})
    except _DAMAGE as error:
        if isinstance(error, StoreFormatError):
            raise
        raise ValueError(f"its pickle is damaged: {error}") from error


class _Unpickler(pickle.Unpickler):
    """Has no other functions and classes than those of ``GLOBALS``, and bounds what they copy."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._left = 2 * len(content)  # protocol 2 makes a bytearray of bytes, and these of text

    def find_class(self, module: str, name: str) -> PickledGlobal:
        found = _find_global(f"{module}.{name}")
        return PickledGlobal(found.name, functools.partial(self._copy, found)) if found.copies else found

    def _copy(self, found: PickledGlobal, *arguments: object) -> object:
        self._left -= sum(len(each) for each in arguments if isinstance(each, Sized))
        if self._left < 0:
            raise ValueError("it copies values over and over")
        return found(*arguments)


def _find_global(name: str) -> PickledGlobal:
    if name not in GLOBALS:
        raise make_refusal(name)
    return GLOBALS[name]


def _check(content: bytes) -> bool:
    """Refuse what the unpickler must not meet; whether its value is the result (see :func:`_finish`)."""
    stack, memo = _Stack(), dict[object, object]()
    containers, is_finished = 0, True
    for opcode, argument, _ in pickletools.genops(content):
        name = opcode.name
        if name in _REFUSED:
            raise make_refusal(f"{_REFUSED[name]}{f' {argument}' if name == 'INST' else ''}")
        if name in _PUTS:
            index = len(memo) if argument is None else argument
            if index > max(len(content), _LEAST_MEMO):
                raise ValueError(f"it remembers a value as number {index}, and has {len(content)} bytes")
            memo[index] = stack.top()
            continue
        if name in _GETS:
            stack.append(memo[argument])
            continue
        if isinstance(argument, int) and argument.bit_length() > _MAX_INTEGER_BITS:
            raise ValueError(f"it has an integer of {argument.bit_length()} bits")
        containers += name in _CONTAINERS
        if containers > _MAX_CONTAINERS:
            raise ValueError(f"it has more than {_MAX_CONTAINERS} containers")
        if name in _TO_FINISH:
            is_finished = False
        stack.apply(opcode, argument)
    if len(stack) != 0:
        raise ValueError("it must leave one value")
    return is_finished


class _Stack(list[object]):
    """The values on an unpickler's stack: texts, and pickletools' description of the type of others."""

    def top(self) -> object:
        """The last value."""
        if not self or self[-1] is _MARK:
            raise ValueError("it takes more values than it gave")
        return self[-1]

    def apply(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        """Take the values that an operation takes, and add those that it gives."""
        name, taken = opcode.name, self._take(opcode)
        if name in {"SETITEM", "SETITEMS"}:
            _check_keys(taken[1::2])
        elif name in {"ADDITEMS", "FROZENSET"}:
            _check_keys(taken[name == "ADDITEMS" :])
        elif name in {"REDUCE", "BUILD"} and taken[0] is not pickletools.anyobject:
            raise make_refusal(f"{'a call of' if name == 'REDUCE' else 'a state for'} {_show(taken[0])}")
        elif name == "STACK_GLOBAL":
            _find_global(".".join(map(_show, taken)))
        elif name == "GLOBAL":
            _find_global(str(argument).replace(" ", ".", 1))
            argument = None
        if name == "DUP":
            self += taken * 2
        else:
            self += [argument] if isinstance(argument, str) else opcode.stack_after

    def _take(self, opcode: pickletools.OpcodeInfo) -> list[object]:
        """The values that an operation takes, without the mark before them."""
        before = opcode.stack_before
        if not before or (opcode.name == "POP" and self[-1:] == [_MARK]):
            return [self.pop()] if before else []
        values: list[object] = []
        if _MARK in before:
            while self and (value := self.pop()) is not _MARK:
                values.append(value)
            before = before[: before.index(_MARK)]
        begin = len(self) - len(before)
        taken = self[max(begin, 0) :]
        if begin < 0 or _MARK in taken:
            raise ValueError("it takes more values than it gave")
        del self[begin:]
        return taken + values[::-1]


def _check_keys(kinds: Sequence[object]) -> None:
    """Refuse keys whose hash may be expensive, or recurse without a limit."""
    if pickletools.pytuple in kinds:
        raise make_refusal("a key of type tuple")


def _show(kind: object) -> str:
    return kind if isinstance(kind, str) else str(getattr(kind, "name", kind))


def _finish(value: Any, finished: dict[int, object]) -> Any:
    """A value with its arrays in place of what describes them; ``finished``: containers, by identity."""
    kind = type(value)
    if kind is PickledArray:
        return value.get_array()
    if kind is bytearray:
        return bytes(value)
    if kind in {PickledGlobal, PickledDtype}:
        raise make_refusal(f"{value.name} as a value")
    if kind not in {tuple, list, dict, set, frozenset}:
        return value
    if id(value) in finished:
        return finished[id(value)]
    finished[id(value)] = value
    if kind is list:
        value[:] = [_finish(each, finished) for each in value]
    elif kind is dict:
        for key, each in value.items():
            value[check_key(key)] = _finish(each, finished)
    elif kind is tuple:
        finished[id(value)] = tuple([_finish(each, finished) for each in value])
    else:
        for each in value:
            check_key(each)
    return finished[id(value)]
