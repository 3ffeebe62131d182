"""Exceptions of worker processes: raised again in the parent with the same type, attributes and the traceback as text.

The constructor of a class that takes anything else than a message is not called again: the object is made by
``__new__``, and its attributes are set. An exception that cannot be pickled becomes a
:class:`~penstock.errors.SampleError` with its name and traceback.
"""

from __future__ import annotations

import builtins
import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from penstock.errors import PenstockError, SampleError

__all__ = ["CapturedError"]


class _Text(str):
    """A message whose ``repr`` keeps its lines: a KeyError shows the repr of its argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(slots=True)
class CapturedError:
    """An exception in parts that can be pickled, made in the process where it was raised."""

    name: str  # name of its type
    text: str  # the traceback
    kind: bytes | None = None
    args: bytes | None = None
    """``kind`` and ``args``: the type and its arguments, pickled."""
    attributes: dict[str, bytes] = field(default_factory=dict)
    """Its attributes by name, pickled; those that cannot be pickled are left out."""
    whole: bytes | None = None  # the exception itself, pickled, if it is a PenstockError

    @classmethod
    def capture(cls, error: BaseException, dumps: Callable[[object], bytes] = pickle.dumps) -> CapturedError:
        """Capture ``error`` with its traceback; ``dumps`` pickles its parts."""
        captured = cls(type(error).__name__, "".join(traceback.format_exception(error)).rstrip())
        if isinstance(error, PenstockError):
            captured.whole = _pickle(error, dumps)
        captured.kind, captured.args = _pickle(type(error), dumps), _pickle(error.args, dumps)
        hidden = [name for kind, names in _HIDDEN.items() for name in names if isinstance(error, kind)]
        attributes = {name: getattr(error, name) for name in hidden if getattr(error, name) is not None}
        for name, value in {**attributes, **getattr(error, "__dict__", {})}.items():
            if name != "__notes__" and (pickled := _pickle(value, dumps)) is not None:
                captured.attributes[name] = pickled
        return captured

    def rebuild(self, worker: int) -> BaseException:
        """Return the exception again, to be raised in the parent."""
        message = f"Caught {self.name} in DataLoader worker process {worker}.\nOriginal {self.text}"
        if self.whole is not None and isinstance(error := _unpickle(self.whole), PenstockError):
            error.locate(worker=worker).add_note(message)
            return error
        kind, args = _unpickle(self.kind), _unpickle(self.args)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            return SampleError(message, worker=worker)
        error = self._make(kind, args, message)
        if error is None:
            return SampleError(message, worker=worker)
        return error

    def _make(self, kind: type[BaseException], args: object, message: str) -> BaseException | None:
        plain = kind.__init__ in _PLAIN_INITS and not (
            isinstance(args, tuple) and issubclass(kind, OSError) and len(args) > 1
        )
        given = args if isinstance(args, tuple) else ()
        if not plain and given is not args:
            return None
        try:
            if plain:
                error = kind(_Text(message) if issubclass(kind, KeyError) else message)
            elif kind.__module__ == "builtins":
                error = kind(*given)
            else:
                error = kind.__new__(kind, *given)
                error.args = given
        except Exception:  # noqa: BLE001  # a class with a constructor of its own
            return None
        for name, pickled in self.attributes.items():
            with suppress(Exception):  # a class that does not let it be set
                setattr(error, name, _unpickle(pickled))
        if not plain:
            error.add_note(message)
        return error


def _pickle(value: object, dumps: Callable[[object], bytes]) -> bytes | None:
    try:
        return dumps(value)
    except Exception:  # noqa: BLE001  # a user's object may raise anything
        return None


def _unpickle(pickled: bytes | None) -> object:
    if pickled is None:
        return None
    try:
        return pickle.loads(pickled)  # noqa: S301  # from a worker of this program
    except Exception:  # noqa: BLE001  # a user's object may raise anything
        return None


_HIDDEN: Final = {OSError: ("filename", "filename2"), ImportError: ("name", "path")}
"""Attributes that are neither arguments nor in ``__dict__``."""

_PLAIN_INITS = frozenset(
    kind.__init__
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(kind, UnicodeError)
) - {BaseExceptionGroup.__init__}
"""Constructors that take one message."""
