"""Rule not-picklable: objects that spawn and forkserver cannot send to workers."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.rules.open_handle import find_handle
from penstock.doctor.checks.subject import Subject

__all__ = ["find"]


def find(subject: Subject) -> Iterator[Finding]:
    """Find objects that cannot be pickled, and classes that a worker cannot import."""
    result, method = subject.pickling, subject.settings.start_method
    if result is None:
        return
    handles = [place for place in subject.graph.objects if find_handle(place) is not None]
    for failed in result.unpicklable:
        path = subject.graph.path_of(failed.value)
        if path is not None and any(path == each.path or path.startswith(f"{each.path}.") for each in handles):
            continue  # the rule open-handle reports it
        where = path or f"{failed.root} (the result of its __getstate__ or __reduce__)"
        text = f"{_describe(failed.value)} cannot be pickled, as start method {method} requires ({failed.message})."
        yield Finding("not-picklable", "error", where, text, _advice(failed.value))
    main = sys.modules.get("__main__")
    if main is None or hasattr(main, "__file__") or getattr(main, "__spec__", None) is not None:
        return
    for value in result.reached.values():
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            text = f"{_describe(value)} is defined at a prompt or in a notebook: a worker ({method}) cannot import it."
            where = subject.graph.path_of(value) or value.__qualname__
            yield Finding("not-picklable", "error", where, text, "Move it to a module, and import it from there.")


def _describe(value: object) -> str:
    if isinstance(value, types.FunctionType):
        return "A lambda" if value.__name__ == "<lambda>" else f"The function {value.__qualname__}"
    if isinstance(value, type):
        return f"An instance of the class {value.__qualname__}"
    return f"An object of type {type(value).__module__}.{type(value).__qualname__}"


def _advice(value: object) -> str:
    if isinstance(value, (type, types.FunctionType)):
        return "Define it at the top level of a module. For a function with bound arguments, use functools.partial."
    return "Leave it out in __getstate__ and create it on first use, or pass multiprocessing_context='fork'."
