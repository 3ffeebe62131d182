"""Whether penstock's run of a program is torch's: which meant differences were met, and the first that is not meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from tests.parity.fuzzing.amendments import AMENDMENTS, Amendment
from tests.parity.fuzzing.execute import Event, execute
from tests.parity.fuzzing.rules import RULES, Difference

__all__ = ["Result", "check"]

Run = Callable[[dict[str, Any], str], list[Event]]

_NOTHING: Final[Event] = ("nothing",)


@dataclass
class Result:
    """Of one program.

    Parameters
    ----------
    difference : Difference, optional
        The first that nobody means.
    met : Counter
        How often each difference that is meant was met, by its name.
    events, batches : int
        What was compared.
    """

    difference: Difference | None = None
    met: Counter[str] = field(default_factory=Counter)
    events: int = 0
    batches: int = 0


def check(program: dict[str, Any], run: Run = execute) -> Result:
    """Run ``program`` with torch's loader and penstock's, by ``run``, and compare."""
    ours = run(program, program.get("family", "own"))
    result = _compared(program, run(program, "torch"), ours)
    return result if result.difference is None else _amended(program, result, ours, run)


def _amended(program: dict[str, Any], result: Result, ours: list[Event], run: Run) -> Result:
    """The result with the fewest amendments of torch that take it furthest."""
    tried: list[tuple[Amendment, ...]] = []
    best, chosen = result, tuple[Amendment, ...]()
    while best.difference is not None:
        left = [amendment for amendment in AMENDMENTS if amendment not in chosen]
        # events without an order are sorted: the first that differs need not be the one that is meant
        concerned = [a for a in left if _is_unordered(program) or a.concerns(program, best.difference)]
        sets = [(*chosen, a) for a in concerned] + ([(*chosen, *concerned)] if len(concerned) > 1 else [])
        found, before = None, best
        for amendments in sets:
            again = _compared(program, _amended_run(program, amendments, run), ours)
            again.met.update(amendment.name for amendment in amendments)
            if _is_further(again, best) or (found is None and not _is_further(before, again)):
                best, found = again, amendments
        if found is None or found in tried:
            break
        chosen = found
        tried.append(found)
    return best


def _is_further(one: Result, other: Result) -> bool:
    if one.difference is None or other.difference is None:
        return one.difference is None and other.difference is not None
    return one.difference.at > other.difference.at


def _amended_run(program: dict[str, Any], amendments: tuple[Amendment, ...], run: Run) -> list[Event]:
    """What torch's loader would do if it did what penstock documents."""
    with ExitStack() as stack:
        for amendment in amendments:
            stack.enter_context(amendment.patch())
        return run(program, "torch")


def _compared(program: dict[str, Any], theirs: list[Event], ours: list[Event]) -> Result:
    if _is_unordered(program):
        theirs, ours = _unordered(theirs), _unordered(ours)
    result, i, j = Result(), 0, 0
    while i < len(theirs) or j < len(ours):
        one = theirs[i] if i < len(theirs) else _NOTHING
        two = ours[j] if j < len(ours) else _NOTHING
        verdict: str = "same" if one == two else ""
        for rule in () if verdict else RULES:
            verdict = rule.judge(program, one, two, ours[:j])
            if verdict:
                result.met[rule.name] += 1
                break
        if verdict == "stop":
            return result
        if not verdict:
            result.difference = Difference(j, one, two)
            return result
        i, j = i + (verdict == "same"), j + 1
        result.events += 1
        result.batches += two[0] == "batch"
    return result


def _is_unordered(program: dict[str, Any]) -> bool:
    return program.get("loader", {}).get("in_order") is False


def _unordered(events: list[Event]) -> list[Event]:
    """Batches and errors of iterators in the order of their texts: which worker is first is not decided."""
    came = [event for event in events if event[0] == "batch" or event[:2] == ("raised", "next")]
    ordered = iter(sorted((_unplaced(event) for event in came), key=_sortable))
    return [(*next(ordered), event[-1]) if event in came else event for event in events]


def _sortable(event: Event) -> tuple[str, ...]:
    """Errors by what the user's code said, then by the type of Python's that they are of: the rest may differ."""
    if event[0] != "raised":
        return event[0], repr(event)
    kinds = event[2][event[2].index("PenstockError") + 1 :] if "PenstockError" in event[2] else event[2]
    return event[0], repr(event[4]), kinds[0], repr(event)


def _unplaced(event: Event) -> Event:
    """A batch or an error, without its states and without the worker that it came from."""
    return tuple(
        re.sub(r"worker process \d+", "worker", part) if isinstance(part, str) else part for part in event[:-1]
    )
