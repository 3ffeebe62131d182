"""Reads pickles of plain values, and refuses by name whatever else a pickle asks for; nothing is imported or called.

::

    bytes ──opcodes of protocols 2 to 5──> numbers, str, bytes, tuples, lists, dicts, sets, NumPy arrays
                     └ GLOBAL os.system ──> StoreFormatError: names it; nothing ran

``pickle`` imports what a pickle names and calls it with what the pickle gives, and Python's own unpickler, even where
it is restricted, hashes nested tuples, allocates what a length says, and sets attributes. This module is an interpreter
of its own for the opcodes that plain values need (``pickletools`` documents them). Its memory is bounded by the length
of the pickle, and its time is linear in it. Long byte strings are views of the pickle.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import numpy as np

from penstock.stores.pickles.arrays import PickledArray, PickledDtype
from penstock.stores.pickles.globals import GLOBALS, PickledGlobal, check_key, make_refusal

__all__ = ["is_pickle", "restricted_loads"]

_MAX_CONTAINERS: Final = 1 << 20
_MAX_NAME_NBYTES: Final = 256
_MAX_INTEGER_NBYTES: Final = 16
_FLOAT: Final = struct.Struct(">d")
_INT32: Final = struct.Struct("<i")


def is_pickle(head: bytes | memoryview) -> bool:
    """Whether a value begins as a pickle of protocols 2 to 5 does."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def restricted_loads(content: bytes | memoryview) -> Any:
    """The value of a pickle of plain values.

    Parameters
    ----------
    content : bytes or memoryview
        The pickle, of protocol 2 to 5; views of it are in the result.

    Returns
    -------
    object
        None, bool, int, float, str, bytes, read-only memoryview (byte strings of more than 255 bytes, and bytearrays),
        read-only NumPy array; or tuple, list, dict, set or frozenset of such values. A NumPy scalar is a Python number.

    Raises
    ------
    StoreFormatError
        If the pickle needs anything else; the message names it.
    ValueError
        If it is damaged.
    """
    return _Interpreter(memoryview(content).toreadonly()).run()


class _Interpreter:
    """The stack and memo of one pickle."""

    __slots__ = ("_at", "_containers", "_content", "_has_globals", "_is_done", "_marks", "_memo", "_stack")

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._containers = 0
        self._has_globals = self._is_done = False

    def run(self) -> Any:
        content, operations = self._content, _OPERATIONS
        if not is_pickle(content):
            raise ValueError("it must be a pickle of protocol 2 to 5")
        try:
            while not self._is_done:
                code = content[self._at]
                self._at += 1
                operations[code](self)
        except (IndexError, KeyError, struct.error) as error:
            raise ValueError(f"its pickle is damaged at byte {self._at} of {len(content)}") from error
        except RecursionError as error:  # pragma: no cover  # nothing here recurses
            raise ValueError("its pickle is nested too deeply") from error
        if len(self._stack) != 1 or self._marks:
            raise ValueError("its pickle is damaged: it must leave one value")
        result = self._stack[0]
        if self._has_globals and type(result) is not np.ndarray:
            _refuse_unbuilt(result)
        return result

    def take(self, nbytes: int) -> memoryview:
        """The next bytes of the pickle."""
        begin = self._at
        self._at = end = begin + nbytes
        if end > len(self._content):
            raise ValueError(f"its pickle is truncated: {nbytes} bytes are needed at byte {begin}")
        return self._content[begin:end]

    def take_size(self, nbytes: int) -> int:
        return int.from_bytes(self.take(nbytes), "little")

    def take_line(self) -> str:
        window = bytes(self._content[self._at : self._at + _MAX_NAME_NBYTES])
        line, separator, _ = window.partition(b"\n")
        if not separator:
            raise ValueError(f"its pickle has a name of more than {_MAX_NAME_NBYTES} bytes at byte {self._at}")
        self._at += len(line) + 1
        return line.decode("utf-8", "backslashreplace")

    def push(self, value: object) -> None:
        self._stack.append(value)

    def pop(self) -> Any:
        if self._marks and len(self._stack) <= self._marks[-1]:
            raise ValueError("its pickle is damaged: it takes more values than it gave")
        return self._stack.pop()

    def top(self) -> Any:
        return self._stack[-1]

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def pop_marked(self) -> list[Any]:
        begin = self._marks.pop()
        values = self._stack[begin:]
        del self._stack[begin:]
        return values

    def push_container(self, value: object) -> None:
        self._containers += 1
        if self._containers > _MAX_CONTAINERS:
            raise ValueError(f"its pickle has more than {_MAX_CONTAINERS} containers")
        self._stack.append(value)

    def remember(self, key: int) -> None:
        value = self._stack[-1]
        if type(value) is PickledArray:
            value.memo_key = key
        self._memo[key] = value

    def recall(self, key: int) -> None:
        self._stack.append(self._memo[key])

    def push_global(self, module: object, name: object) -> None:
        if type(module) is not str or type(name) is not str:
            raise ValueError("its pickle is damaged: a name must be text")
        try:
            self._stack.append(GLOBALS[module, name])
        except KeyError:
            raise make_refusal(f"{module}.{name}") from None
        self._has_globals = True

    def append_to(self, values: list[Any]) -> None:
        held = self.top()
        if type(held) is not list:
            raise ValueError(f"its pickle is damaged: it appends to {type(held).__name__}")
        held.extend(values)

    def set_items(self, values: list[Any]) -> None:
        held = self.top()
        if type(held) is not dict or len(values) % 2:
            raise ValueError(f"its pickle is damaged: it sets items of {type(held).__name__}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            held[check_key(key)] = value

    def add_to_set(self, values: list[Any]) -> None:
        held = self.top()
        if type(held) is not set:
            raise ValueError(f"its pickle is damaged: it adds to {type(held).__name__}")
        held.update(map(check_key, values))

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if type(function) is not PickledGlobal or function.make is None:
            raise make_refusal(f"a call of {getattr(function, 'name', type(function).__name__)}")
        if type(arguments) is not tuple:
            raise ValueError("its pickle is damaged: arguments must be a tuple")
        try:
            result = function.make(*arguments)
        except TypeError as error:
            raise make_refusal(f"{function.name} with {len(arguments)} arguments") from error
        if type(result) in {dict, set, list}:
            self.push_container(result)
        else:
            self._stack.append(result)

    def build(self) -> None:
        state, held = self.pop(), self.top()
        if type(held) is PickledDtype:
            held.build(state)
        elif type(held) is PickledArray:
            array = held.build(state)
            self._stack[-1] = array
            if held.memo_key is not None:
                self._memo[held.memo_key] = array
        else:
            raise make_refusal(f"a state for {getattr(held, 'name', type(held).__name__)}")

    def stop(self) -> None:
        self._is_done = True

    # The operations of which a picture's pickle consists: one call each, since it is made for every record.

    def push_none(self) -> None:
        self._stack.append(None)

    def push_empty_tuple(self) -> None:
        self._stack.append(())

    def push_byte(self) -> None:
        self._stack.append(self._content[self._at])
        self._at += 1

    def push_two_bytes(self) -> None:
        content, at = self._content, self._at
        self._stack.append(content[at] | content[at + 1] << 8)
        self._at = at + 2

    def push_int32(self) -> None:
        self._stack.append(_INT32.unpack_from(self._content, self._at)[0])
        self._at += 4

    def push_short_bytes(self) -> None:
        begin = self._at + 1
        end = begin + self._content[self._at]
        if end > len(self._content):
            raise ValueError(f"its pickle is truncated at byte {begin}")
        self._stack.append(bytes(self._content[begin:end]))
        self._at = end

    def push_short_text(self) -> None:
        begin = self._at + 1
        end = begin + self._content[self._at]
        if end > len(self._content):
            raise ValueError(f"its pickle is truncated at byte {begin}")
        self._stack.append(str(self._content[begin:end], "utf-8", "surrogatepass"))
        self._at = end

    def remember_next(self) -> None:
        memo = self._memo
        value = self._stack[-1]
        key = len(memo)
        if type(value) is PickledArray:
            value.memo_key = key
        memo[key] = value

    def recall_short(self) -> None:
        self._stack.append(self._memo[self._content[self._at]])
        self._at += 1

    def push_pair(self) -> None:
        second = self.pop()
        self._stack.append((self.pop(), second))

    def push_marked_tuple(self) -> None:
        begin = self._marks.pop()
        stack = self._stack
        stack[begin:] = [tuple(stack[begin:])]

    def check_protocol(self) -> None:
        if not 2 <= self.take(1)[0] <= 5:
            raise ValueError("it must be a pickle of protocol 2 to 5")

    def take_integer(self, nbytes: int) -> int:
        if nbytes > _MAX_INTEGER_NBYTES:
            raise ValueError(f"its pickle has an integer of {nbytes} bytes")
        return int.from_bytes(self.take(nbytes), "little", signed=True)

    def push_text(self, nbytes: int) -> None:
        self._stack.append(str(self.take(nbytes), "utf-8", "surrogatepass"))

    def push_tuple(self, count: int) -> None:
        values = [self.pop() for _ in range(count)][::-1]
        self._stack.append(tuple(values))


def _refuse(what: str) -> Callable[[_Interpreter], None]:
    def operation(interpreter: _Interpreter) -> NoReturn:
        del interpreter
        raise make_refusal(what)

    return operation


def _refuse_unbuilt(result: object) -> None:
    """Refuse functions, classes and parts of arrays that are left as values."""
    pending, seen = [result], set()
    while pending:
        value = pending.pop()
        if type(value) in {tuple, list, dict} and id(value) not in seen:
            seen.add(id(value))
            pending.extend(value.values() if isinstance(value, dict) else value)  # type: ignore[arg-type]  # one of the three
        elif type(value) in {PickledGlobal, PickledDtype, PickledArray}:
            raise make_refusal(f"{getattr(value, 'name', 'numpy.dtype')} as a value")


_Operation = Callable[[_Interpreter], object]


def _unknown(interpreter: _Interpreter) -> NoReturn:
    code = interpreter._content[interpreter._at - 1]  # noqa: SLF001  # a part of it
    raise ValueError(f"its pickle is damaged: byte {code:#04x} is no operation of protocols 2 to 5")


_KNOWN: Final[Mapping[bytes, _Operation]] = {
    b"\x80": _Interpreter.check_protocol,
    b"\x95": lambda i: i.take(8),  # the length of a frame: what is in it is read all the same
    b".": _Interpreter.stop,
    b"(": _Interpreter.mark,
    b"0": lambda i: i.pop(),
    b"1": _Interpreter.pop_marked,
    b"2": lambda i: i.push(i.top()),
    b"N": _Interpreter.push_none,
    b"\x88": lambda i: i.push(True),
    b"\x89": lambda i: i.push(False),
    b"J": _Interpreter.push_int32,
    b"K": _Interpreter.push_byte,
    b"M": _Interpreter.push_two_bytes,
    b"\x8a": lambda i: i.push(i.take_integer(i.take_size(1))),
    b"\x8b": lambda i: i.push(i.take_integer(i.take_size(4))),
    b"G": lambda i: i.push(_FLOAT.unpack(i.take(8))[0]),
    b"X": lambda i: i.push_text(i.take_size(4)),
    b"\x8c": _Interpreter.push_short_text,
    b"\x8d": lambda i: i.push_text(i.take_size(8)),
    b"B": lambda i: i.push(i.take(i.take_size(4))),
    b"C": _Interpreter.push_short_bytes,
    b"\x8e": lambda i: i.push(i.take(i.take_size(8))),
    b"\x96": lambda i: i.push(i.take(i.take_size(8))),
    b"T": lambda i: i.push(i.take(i.take_size(4))),  # str of Python 2
    b"U": _Interpreter.push_short_bytes,
    b")": _Interpreter.push_empty_tuple,
    b"t": _Interpreter.push_marked_tuple,
    b"\x85": lambda i: i.push_tuple(1),
    b"\x86": _Interpreter.push_pair,
    b"\x87": lambda i: i.push_tuple(3),
    b"]": lambda i: i.push_container([]),
    b"a": lambda i: i.append_to([i.pop()]),
    b"e": lambda i: i.append_to(i.pop_marked()),
    b"}": lambda i: i.push_container({}),
    b"s": lambda i: i.set_items([i.pop(), i.pop()][::-1]),
    b"u": lambda i: i.set_items(i.pop_marked()),
    b"\x8f": lambda i: i.push_container(set()),
    b"\x90": lambda i: i.add_to_set(i.pop_marked()),
    b"\x91": lambda i: i.push_container(frozenset(map(check_key, i.pop_marked()))),
    b"q": lambda i: i.remember(i.take(1)[0]),
    b"r": lambda i: i.remember(i.take_size(4)),
    b"\x94": _Interpreter.remember_next,
    b"h": _Interpreter.recall_short,
    b"j": lambda i: i.recall(i.take_size(4)),
    b"c": lambda i: i.push_global(i.take_line(), i.take_line()),
    b"\x93": lambda i: i.push_global(*[i.pop(), i.pop()][::-1]),
    b"R": _Interpreter.reduce,
    b"b": _Interpreter.build,
    b"i": lambda i: _refuse(f"an instance of {i.take_line()}.{i.take_line()}")(i),
    b"o": _refuse("an instance of a class"),
    b"\x81": _refuse("an instance of a class"),
    b"\x92": _refuse("an instance of a class"),
    b"P": _refuse("an object outside the pickle"),
    b"Q": _refuse("an object outside the pickle"),
    b"\x82": _refuse("an extension of copyreg"),
    b"\x83": _refuse("an extension of copyreg"),
    b"\x84": _refuse("an extension of copyreg"),
    b"\x97": _refuse("a buffer outside the pickle"),
    b"\x98": _refuse("a buffer outside the pickle"),
}
"""What each operation does, by its byte (see ``pickletools``)."""
_OPERATIONS: Final = [_KNOWN.get(bytes([code]), _unknown) for code in range(256)]
