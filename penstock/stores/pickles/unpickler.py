"""Reads pickles of plain values, and refuses by name whatever else a pickle asks for; nothing is imported or called.

::

    bytes ──_check: opcodes of protocols 2 to 5, bounds──> pickle.Unpickler ──> numbers, text, bytes, containers, arrays
                 └ GLOBAL os.system ──> StoreFormatError: names it; nothing ran

    numpy._core.multiarray._reconstruct  ──GLOBALS──> PickledGlobal(make)      no module is imported
    numpy.dtype("u1", False, True)  BUILD (3, "<", None, ...)        ──> PickledDtype
    _reconstruct(ndarray, (0,), b"b")  BUILD (1, shape, dtype, ...)   ──> PickledArray.get_array() ──> view
    _frombuffer(bytes, dtype, shape, "C")                             ──> view
    scalar(dtype, bytes)                                              ──> bool, int, float, str

``pickle.Unpickler`` makes the values. Its ``find_class`` returns what is in ``GLOBALS`` alone. It trusts a pickle in
other ways: it allocates memory for any memo index and any length, and hashes nested tuples. Therefore ``pickletools``
reads the opcodes first. What plain values do not need, and what would cost far more than the bytes of the pickle, is
refused before anything is made. Arrays hold numbers, booleans and strings, and have no more bytes than the pickle
gives; dtypes of objects, records and dates are refused.
"""

from __future__ import annotations

import functools
import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, ClassVar, Final, NoReturn

import numpy as np

from penstock.errors import StoreFormatError
from penstock.sample import Array, DType

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
_DTYPE: Final = re.compile(r"[|<>=]?([?]|b1|[iu][1248]|f[248]|[SU][0-9]{1,6})")
_MAX_AXES: Final = 32
_MAX_NAME_NBYTES: Final = 256
_READ: Final = "only NumPy arrays, numbers, text, bytes and containers of them are read"
_PLAIN_KEYS: Final = frozenset({str, bytes, int, float, bool, type(None)})


class PickledGlobal:
    """In place of an allowed function or class of a pickle: calls ``make``, and nothing of the module.

    ``copies``: whether the result has the values of an argument once more.
    """

    __slots__ = ("copies", "make", "name")

    def __init__(self, name: str, make: Callable[..., object] | None, *, copies: bool = False) -> None:
        self.name, self.make, self.copies = name, make, copies

    def __call__(self, *arguments: object) -> object:
        """Return the value that the function returns for these arguments."""
        if self.make is None:
            raise make_refusal(f"a call of {self.name}")
        try:
            return self.make(*arguments)
        except TypeError as error:
            raise make_refusal(f"{self.name} with {len(arguments)} arguments") from error

    def __setstate__(self, state: object) -> NoReturn:
        raise make_refusal(f"a state for {self.name}")


def make_refusal(what: str) -> StoreFormatError:
    """Return the error for a pickle that needs something else, which ``what`` names."""
    return StoreFormatError(f"its pickle needs {what[:_MAX_NAME_NBYTES]!a}, which is refused: {_READ}")


def check_key(key: object) -> object:
    """A key of a dict or an element of a set: hashing it is cheap."""
    if type(key) not in _PLAIN_KEYS:
        raise make_refusal(f"a key of type {type(key).__name__}")
    return key


def _encode(text: object, encoding: object) -> bytes:
    """``_codecs.encode``, with which pickles of protocol 2 write bytes."""
    if type(text) is not str or encoding not in {"latin1", "latin-1"}:
        raise make_refusal(f"_codecs.encode to {encoding if type(encoding) is str else type(encoding).__name__}")
    return text.encode("latin-1")


def _make_bytes(content: object = b"", encoding: object = "latin-1") -> object:
    if type(content) is str:
        return _encode(content, encoding)
    if not isinstance(content, bytes | bytearray):
        raise make_refusal(f"bytes of {type(content).__name__}")
    return content


def _make_set(values: object = ()) -> set[object]:
    if type(values) not in {list, tuple, set, frozenset}:
        raise make_refusal(f"a set of {type(values).__name__}")
    return set(map(check_key, values))  # type: ignore[call-overload]  # one of those types


def _make_dict(pairs: object = ()) -> dict[object, object]:
    if type(pairs) not in {list, tuple}:
        raise make_refusal(f"a dict of {type(pairs).__name__}")
    made = {}
    for pair in pairs:  # type: ignore[attr-defined]  # one of those types
        if type(pair) not in {list, tuple} or len(pair) != 2:
            raise make_refusal("a dict of other values than pairs")
        made[check_key(pair[0])] = pair[1]
    return made


class PickledDtype:
    """A dtype in a pickle: its code, then its byte order.

    ``code``: the first argument of ``numpy.dtype``. Raises ValueError if it is no dtype of numbers, booleans or
    strings.
    """

    __slots__ = ("dtype",)
    name: ClassVar[str] = "numpy.dtype"

    def __init__(self, code: object, align: object = False, copy: object = True) -> None:
        text = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        match = _DTYPE.fullmatch(text) if type(text) is str else None
        if match is None or type(align) not in {bool, int} or type(copy) not in {bool, int}:
            raise ValueError(f"the dtype {_show(code)} is refused; only numbers, booleans and strings are read")
        self.dtype: DType = np.dtype(match[1])

    def __setstate__(self, state: object) -> None:
        """Set the byte order, from the state that NumPy pickles."""
        if type(state) is not tuple or not 3 <= len(state) <= 9:
            raise ValueError("the state of a dtype must be a tuple of 3 to 9 values")
        order, shape, names = state[1], state[2], state[3:5]
        order = order.decode("ascii", "replace") if type(order) is bytes else order
        if shape is not None or any(each is not None for each in names):
            raise ValueError("dtypes with fields or of arrays are refused; only numbers, booleans and strings are read")
        if type(order) is not str or order not in {"<", ">", "=", "|"}:
            raise ValueError(f"the byte order of a dtype must be one of < > = |, got {_show(order)}")
        self.dtype = self.dtype.newbyteorder(">" if order == ">" else "<")


class PickledArray:
    """An array in a pickle: without shape and bytes, until the pickle gives them."""

    __slots__ = ("_array",)

    def __init__(self) -> None:
        self._array: Array | None = None

    def __setstate__(self, state: object) -> None:
        """Make the array, from the state that NumPy pickles: version, shape, dtype, Fortran order, bytes."""
        if type(state) is not tuple or len(state) not in {4, 5}:
            raise ValueError("the state of an array must be a tuple of 4 or 5 values")
        shape, dtype, is_fortran, content = state[-4:]
        if type(is_fortran) not in {bool, int}:
            raise ValueError(f"the order of an array must be true or false, got {_show(is_fortran)}")
        self._array = make_array(content, dtype, shape, "F" if is_fortran else "C")

    def get_array(self) -> Array:
        """Return the array; ValueError if the pickle did not give it."""
        if self._array is None:
            raise ValueError("an array has no shape and no bytes")
        return self._array


def make_array(content: object, dtype: object, shape: object, order: object) -> Array:
    """Return an array of these bytes: a read-only view of them.

    Raises ValueError if the bytes are not those of an array of this shape.
    """
    if not isinstance(content, bytes | bytearray):
        raise ValueError(f"the content of an array must be bytes, got {type(content).__name__}")  # noqa: TRY004  # damage
    if type(dtype) is not PickledDtype:
        raise ValueError(f"an array must have a dtype, got {_show(dtype)}")
    axes = (shape,) if isinstance(shape, int) else shape if isinstance(shape, tuple) else (None,)
    if len(axes) > _MAX_AXES or not all(type(length) is int and 0 <= length < 1 << 40 for length in axes):
        raise ValueError(f"the shape of an array must be a tuple of lengths, got {_show(shape)}")
    if order not in {"C", "F"}:
        raise ValueError(f"the order of an array must be C or F, got {_show(order)}")
    if math.prod(axes) * dtype.dtype.itemsize != len(content):
        raise ValueError(f"the {len(content)} bytes of an array are not those of shape {axes} and {dtype.dtype}")
    if not len(content):
        array = np.empty(axes, dtype.dtype)
        array.flags.writeable = False
        return array
    flat = np.frombuffer(content, dtype.dtype)
    flat.flags.writeable = False
    return flat.reshape(axes, order="F" if order == "F" else "C")


def make_scalar(dtype: object, content: object) -> object:
    """Return a NumPy scalar as Python's own: bool, int, float, str or bytes."""
    return make_array(content, dtype, (1,), "C")[0].item()


def _show(value: object) -> str:
    return ascii(value)[:80] if isinstance(value, str | bytes | bool | float) or value is None else type(value).__name__


def _reconstruct(kind: object, shape: object, code: object) -> PickledArray:
    del shape, code  # always (0,) and b"b"; the state has the true ones
    if kind is not _NDARRAY:
        raise make_refusal(f"an array of class {getattr(kind, 'name', type(kind).__name__)}")
    return PickledArray()


_NDARRAY: Final = PickledGlobal("numpy.ndarray", None)


def _list_globals() -> dict[str, PickledGlobal]:
    makers: dict[str, Callable[..., object]] = {
        "_codecs.encode": _encode,
        "numpy.dtype": PickledDtype,
        "collections.OrderedDict": _make_dict,
    }
    for core in ("numpy.core", "numpy._core"):
        makers[f"{core}.multiarray._reconstruct"] = _reconstruct
        makers[f"{core}.multiarray.scalar"] = make_scalar
        makers[f"{core}.numeric._frombuffer"] = make_array
    for builtins in ("builtins", "__builtin__"):
        makers[f"{builtins}.bytes"] = makers[f"{builtins}.bytearray"] = _make_bytes
        makers[f"{builtins}.set"] = _make_set
        makers[f"{builtins}.frozenset"] = lambda values=(): frozenset(_make_set(values))
    found = {name: PickledGlobal(name, make, copies="numpy" not in name) for name, make in makers.items()}
    found[_NDARRAY.name] = _NDARRAY
    return found


GLOBALS: Final[Mapping[str, PickledGlobal]] = _list_globals()


def is_pickle(head: bytes | memoryview) -> bool:
    """Return whether a value begins as a pickle of protocols 2 to 5 does."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def restricted_loads(content: bytes | memoryview) -> Any:
    """Return the value of a pickle of plain values.

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
        """Return the last value."""
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
            raise make_refusal(f"{'a call of' if name == 'REDUCE' else 'a state for'} {_show_kind(taken[0])}")
        elif name == "STACK_GLOBAL":
            _find_global(".".join(map(_show_kind, taken)))
        elif name == "GLOBAL":
            _find_global(str(argument).replace(" ", ".", 1))
            argument = None
        if name == "DUP":
            self += taken * 2
        else:
            self += [argument] if isinstance(argument, str) else opcode.stack_after

    def _take(self, opcode: pickletools.OpcodeInfo) -> list[object]:
        """Return the values that an operation takes, without the mark before them."""
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


def _show_kind(kind: object) -> str:
    return kind if isinstance(kind, str) else str(getattr(kind, "name", kind))


def _finish(value: Any, finished: dict[int, object]) -> Any:
    """Return a value with its arrays in place of what describes them; ``finished``: containers, by identity."""
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
