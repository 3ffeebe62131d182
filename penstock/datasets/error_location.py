"""Where an error happened, added to errors of any class: to the user's own without changing their type."""

from __future__ import annotations

from typing import Final

from penstock.errors import PenstockError, SampleError
from penstock.sample import Value

__all__ = ["add_location", "location_of"]

_LOCATION: Final = "_penstock_location"
"""Attribute of an error that is not penstock's: its location, for :func:`location_of`."""


def add_location(error: BaseException, **where: object) -> BaseException:
    """``error`` with a note where it happened.

    The same object, so that its type and attributes are kept; for ``StopIteration``, ``GeneratorExit`` and
    ``SystemExit``, a :class:`SampleError`.
    """
    if isinstance(error, PenstockError):
        return error.locate(**where)
    if isinstance(error, (StopIteration, StopAsyncIteration, GeneratorExit, SystemExit)):
        message = f"{type(error).__name__} was raised while a sample was built: {error}"
        wrapped = SampleError(message.removesuffix(": "), **where)
        wrapped.__cause__ = error
        return wrapped
    known = {name: value for name, value in where.items() if value is not None}
    if known:
        error.add_note(f"[{', '.join(f'{name}={value!r}' for name, value in known.items())}]")
        error.__dict__[_LOCATION] = {**known, **error.__dict__.get(_LOCATION, {})}
    return error


def location_of(error: BaseException) -> dict[str, Value]:
    """Return what :func:`add_location` has added to ``error``; the innermost call first."""
    return error.where if isinstance(error, PenstockError) else error.__dict__.get(_LOCATION, {})
