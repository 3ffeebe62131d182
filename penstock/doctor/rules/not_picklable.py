"""Rule not-picklable: what spawn and forkserver cannot send to workers."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

from penstock.doctor.findings import Finding
from penstock.doctor.rules.open_handle import handle_at
from penstock.doctor.subject import Subject

__all__ = ["find"]


def find(subject: Subject) -> Iterator[Finding]:
    """An object that does not pickle, by its path; classes that a worker could not import."""
    pickled, method = subject.pickled, subject.setting.start_method
    if pickled is None:
        return
    handles = [place for place in subject.graph.places if handle_at(place) is not None]
    for failure in pickled.failures:
        path = subject.graph.path_of(failure.value)
        if path is not None and any(path == each.path or path.startswith(f"{each.path}.") for each in handles):
            continue  # said by open-handle
        where = path or f"{failure.root} (what its __getstate__ or __reduce__ gives)"
        text = f"{_named(failure.value)}: start method {method} has to pickle it ({failure.text})."
        yield Finding("not-picklable", "error", where, text, _advice(failure.value))
    main = sys.modules.get("__main__")
    if main is None or hasattr(main, "__file__") or getattr(main, "__spec__", None) is not None:
        return
    for value in pickled.reached.values():
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            text = f"{_named(value)}, defined at a prompt or in a notebook: a worker of {method} cannot import it."
            where = subject.graph.path_of(value) or value.__qualname__
            yield Finding("not-picklable", "error", where, text, "Put it into a module and import it from there.")


def _named(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        return "A lambda" if value.__name__ == "<lambda>" else f"The function {value.__qualname__}"
    if isinstance(value, type):
        return f"An instance of the class {value.__qualname__}"
    return f"An object of type {type(value).__module__}.{type(value).__qualname__}"


def _advice(value: Any) -> str:
    if isinstance(value, (type, types.FunctionType)):
        return "Define it at the top of a module; for a function with something bound, use functools.partial."
    return "Leave it out in __getstate__ and make it anew on first use; or use multiprocessing_context='fork'."
