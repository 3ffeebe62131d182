"""The few functions and classes that pickles of plain values name, and what takes their place.

::

    numpy._core.multiarray._reconstruct  ──GLOBALS──> PickledGlobal(make)      no module is imported
    anything else                        ──> StoreFormatError that names it

Called by :mod:`.pickles.unpickler`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from penstock.errors import StoreFormatError
from penstock.stores.pickles.arrays import PickledArray, PickledDtype, make_array, make_scalar

__all__ = ["GLOBALS", "PickledGlobal", "check_key", "make_refusal"]

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
        """The value that the function returns for these arguments."""
        if self.make is None:
            raise make_refusal(f"a call of {self.name}")
        try:
            return self.make(*arguments)
        except TypeError as error:
            raise make_refusal(f"{self.name} with {len(arguments)} arguments") from error

    def __setstate__(self, state: object) -> NoReturn:
        raise make_refusal(f"a state for {self.name}")


def make_refusal(what: str) -> StoreFormatError:
    """The error for a pickle that needs something else, which ``what`` names."""
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
