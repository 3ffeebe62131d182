"""Makes a program smaller as long as it shows the same difference."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["shrink"]


def shrink(program: dict[str, Any], still: Callable[[dict[str, Any]], bool], tries: int = 300) -> dict[str, Any]:
    """The smallest program found for which ``still`` holds, after at most ``tries`` runs.

    Whatever is left out of a description has a default, so that parts are simply taken away.
    """
    left, shrunk = tries, True
    while shrunk and left > 0:
        shrunk = False
        for smaller in _smaller(program):
            left -= 1
            if left < 0:
                break
            if still(smaller):
                program, shrunk = smaller, True
                break
    return program


def _smaller(value: Any) -> Iterator[Any]:
    """Variants of a description, the much smaller ones first."""
    if isinstance(value, dict):
        yield from _smaller_mapping(value)
    elif isinstance(value, list):
        for size in (len(value) // 2, 1):
            for at in range(0, len(value), max(size, 1)) if size else ():
                yield [*value[:at], *value[at + size :]]
        for at, item in enumerate(value):
            for smaller in _smaller(item):
                yield [*value[:at], smaller, *value[at + 1 :]]
    elif isinstance(value, int) and not isinstance(value, bool) and value > 1:
        yield from sorted({1, value // 2, value - 1})


def _smaller_mapping(value: dict[str, Any]) -> Iterator[Any]:
    for inner in [*([value["of"]] if "of" in value else ()), *value.get("parts", ())]:
        yield copy.deepcopy(inner)  # a dataset in place of the one around it
    for name in value:
        if name not in {"kind", "do", "seed", "of"}:
            yield {key: item for key, item in value.items() if key != name}
    for name, item in value.items():
        if name != "seed":
            for smaller in _smaller(item):
                yield {**value, name: smaller}
