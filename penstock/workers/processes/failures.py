"""Exceptions across processes: the same type with the same attributes, and the worker's traceback in words.

A class whose constructor wants anything else than a message is not called again: the object is made and given its
attributes. What cannot travel at all is told by a :class:`~penstock.errors.SampleError` that names it.
"""

from __future__ import annotations

import builtins
import pickle
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import PenstockError, SampleError

__all__ = ["Failure"]


class _Text(str):
    """A message whose ``repr`` keeps its lines: a KeyError shows the repr of what it is given."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(slots=True)
class Failure:
    """An exception taken apart, in the process where it was raised.

    Parameters
    ----------
    name : str
        Of its type.
    text : str
        The traceback.
    kind, args : bytes, optional
        The type and its arguments, pickled.
    attributes : dict
        Pickled, by name; without those that cannot be.
    whole : bytes, optional
        An error of penstock's, which knows how to pickle itself.
    """

    name: str
    text: str
    kind: bytes | None = None
    args: bytes | None = None
    attributes: dict[str, bytes] = field(default_factory=dict)
    whole: bytes | None = None

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Take ``error`` apart."""
        failure = cls(type(error).__name__, "".join(traceback.format_exception(error)).rstrip())
        if isinstance(error, PenstockError):
            failure.whole = _pickled(error)
        failure.kind, failure.args = _pickled(type(error)), _pickled(error.args)
        hidden = [name for kind, names in _HIDDEN.items() for name in names if isinstance(error, kind)]
        attributes = {name: getattr(error, name) for name in hidden if getattr(error, name) is not None}
        for name, value in {**attributes, **getattr(error, "__dict__", {})}.items():
            if name != "__notes__" and (pickled := _pickled(value)) is not None:
                failure.attributes[name] = pickled
        return failure

    def rebuilt(self, worker: int) -> BaseException:
        """The exception again, to be raised by the consumer."""
        message = f"Caught {self.name} in DataLoader worker process {worker}.\nOriginal {self.text}"
        if self.whole is not None and isinstance(error := _loaded(self.whole), PenstockError):
            error.locate(worker=worker).add_note(message)
            return error
        kind, args = _loaded(self.kind), _loaded(self.args)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            return SampleError(message, worker=worker)
        error = self._like(kind, args, message)
        if error is None:
            return SampleError(message, worker=worker)
        return error

    def _like(self, kind: type[BaseException], args: Any, message: str) -> BaseException | None:
        plain = kind.__init__ in _PLAIN_INITS and not (
            isinstance(args, tuple) and issubclass(kind, OSError) and len(args) > 1
        )
        try:
            if plain:
                error = kind(_Text(message) if issubclass(kind, KeyError) else message)
            elif kind.__module__ == "builtins":
                error = kind(*args)
            else:
                error = kind.__new__(kind, *args)
                error.args = args
        except Exception:  # noqa: BLE001  # a class that nobody but its author can make
            return None
        for name, pickled in self.attributes.items():
            with suppress(Exception):  # a class that refuses what it has
                setattr(error, name, _loaded(pickled))
        if not plain:
            error.add_note(message)
        return error


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001  # whatever a user's object raises: it cannot travel
        return None


def _loaded(pickled: bytes | None) -> Any:
    if pickled is None:
        return None
    try:
        return pickle.loads(pickled)  # noqa: S301  # from a worker of this program
    except Exception:  # noqa: BLE001  # whatever a user's object raises: it cannot travel
        return None


_HIDDEN: Final = {OSError: ("filename", "filename2"), ImportError: ("name", "path")}
"""Attributes that are neither arguments nor in ``__dict__``."""

_PLAIN_INITS = frozenset(
    kind.__init__
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(kind, UnicodeError)
) - {BaseExceptionGroup.__init__}
"""Constructors that take one message."""
