"""Weights, temperatures and schedules as shares: what a mixture was asked for, checked once.

A **share** is the part of all draws that goes to one source; the shares of all sources have the sum one. A **stage** is
a run of draws with the same shares. Nothing is drawn here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from penstock.errors import ArgumentError

__all__ = ["LEAST_SHARE", "ScheduleUnit", "Stage", "Temperature", "Until", "Weights", "check_until", "make_stages"]

_OneWeighting = Mapping[str, float] | Sequence[float]
Weights = _OneWeighting | Sequence[tuple[int, _OneWeighting]]
Temperature = float | Sequence[tuple[int, float]]
Until = Literal["first", "all"] | int
ScheduleUnit = Literal["samples", "epochs"]

LEAST_SHARE: Final = 1e-12
"""Of the sum of weights: a source of a smaller share would be drawn from less than once in 10**12 samples."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Draws with the same shares."""

    start: int  # the first draw, in samples or epochs from the beginning of the job
    shares: tuple[float, ...]  # one for each source, with the sum one; 0: the source is not drawn from


def make_stages(
    sizes: Mapping[str, int | None], weights: Weights | None, temperature: Temperature | None
) -> tuple[Stage, ...]:
    """Return the stages of a mixture.

    ``sizes`` has the number of samples of each source, None where that is unknown; for the others see
    :class:`~penstock.Mixture`.

    Raises ArgumentError if the arguments do not give shares.
    """
    if weights is not None and temperature is not None:
        raise ArgumentError("weights and temperature both determine the shares of the sources: give only one of them")
    if weights is not None:
        stages = _make_stages("weights", weights, lambda name, given: _weigh(name, given, list(sizes)))
        for source, shares in zip(sizes, zip(*(stage.shares for stage in stages), strict=True), strict=True):
            if not any(shares):
                raise ArgumentError(
                    f"weights must be above 0 in at least one entry of the schedule for each source, got 0 in each for "
                    f"{source!r}: leave the source out"
                )
        return stages
    for source, size in sizes.items():
        if size is None:
            raise ArgumentError(
                "weights must be given where the length of a source is unknown, got a source without a length: "
                f"{source!r}"
            )
    known = {name: size for name, size in sizes.items() if size is not None}
    given = 1.0 if temperature is None else temperature
    return _make_stages("temperature", given, lambda name, value: _temper(name, value, known))


def check_until(until: object, *, has_schedule: bool) -> Until:
    """``until``, if it says when an epoch ends.

    Raises ArgumentError if it is something else, or no number where shares change.
    """
    if isinstance(until, str) and until in ("first", "all"):
        if has_schedule:
            raise ArgumentError(
                f"until must be a number of samples where a schedule changes the shares, because epochs would have "
                f"different lengths, got until={until!r}"
            )
        return "first" if until == "first" else "all"
    if isinstance(until, bool) or not isinstance(until, int | np.integer) or until < 1:
        raise ArgumentError(f"until must be 'first', 'all' or a positive number of samples, got {until!r:.80}")
    return int(until)


def _make_stages(name: str, given: object, shares_of: Callable[[str, object], tuple[float, ...]]) -> tuple[Stage, ...]:
    """Return one stage, or those of a schedule; ``shares_of`` gets the name of an entry, and its value."""
    if not (isinstance(given, list | tuple) and given and all(map(_is_pair, given))):
        shares = shares_of(name, given)
        if not all(shares):
            raise ArgumentError(f"{name} must be above 0, got {given!r:.200}: leave out sources that are not wanted")
        return (Stage(0, shares),)
    stages: list[Stage] = []
    for place, (start, value) in enumerate(given):
        if isinstance(start, bool) or not isinstance(start, int | np.integer) or start < 0:
            raise ArgumentError(f"{name}[{place}] must begin with a number of samples or epochs, got {start!r:.80}")
        if not stages and start:
            raise ArgumentError(f"the schedule of {name} must begin at 0, got {start} in its first entry")
        if stages and start <= stages[-1].start:
            raise ArgumentError(
                f"the schedule of {name} must have increasing starts, got {start} after {stages[-1].start}"
            )
        stages.append(Stage(int(start), shares_of(f"{name}[{place}]", value)))
    return tuple(stages)


def _is_pair(entry: object) -> bool:
    return isinstance(entry, list | tuple) and len(entry) == 2


def _weigh(name: str, given: object, sources: list[str]) -> tuple[float, ...]:
    if isinstance(given, Mapping):
        for kind, names in (("unknown", [x for x in given if x not in sources]), ("no", set(sources) - given.keys())):
            if names:
                raise ArgumentError(
                    f"{name} must have one number for each source ({', '.join(sources)}), got {kind} "
                    f"{', '.join(sorted(map(str, names)))}"
                )
        values = [given[source] for source in sources]
    elif isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes):
        values = list(given)
        if len(values) != len(sources):
            raise ArgumentError(f"{name} must have one number for each of {len(sources)} sources, got {len(values)}")
    else:
        raise ArgumentError(
            f"{name} must be a mapping of names to numbers, a sequence of numbers, or a schedule of pairs "
            f"(start, weights), got {given!r:.80}"
        )
    for source, value in zip(sources, values, strict=True):
        if not _is_number(value) or not 0 <= value < math.inf:
            raise ArgumentError(f"{name} must be finite and not negative, got {value!r:.80} for {source!r}")
    return _normalize(name, [float(value) for value in values], sources)


def _temper(name: str, given: object, sizes: Mapping[str, int]) -> tuple[float, ...]:
    if not _is_number(given) or not given > 0:  # type: ignore[operator]  # a number, by the condition before
        raise ArgumentError(f"{name} must be a number above 0, got {given!r:.80}")
    power = 1 / float(given)  # type: ignore[arg-type]  # as above
    largest = max(sizes.values())
    # The C library's power may differ in the last bit between machines; ten digits are the same on all of them.
    values = [float(f"{(size / largest) ** power:.9e}") for size in sizes.values()]
    return _normalize(name, [max(value, sys.float_info.min) for value in values], list(sizes))


def _normalize(name: str, values: list[float], sources: list[str]) -> tuple[float, ...]:
    largest = max(values)
    if not largest > 0:
        raise ArgumentError(f"{name} must be above 0 for at least one source, got {values}")
    scaled = [value / largest for value in values]  # no sum overflows
    total = math.fsum(scaled)
    for source, value, given in zip(sources, scaled, values, strict=True):
        if given and value / total < LEAST_SHARE:
            raise ArgumentError(
                f"{name} must give each source at least {LEAST_SHARE:g} of all samples, got {given:g} for {source!r}, "
                f"where the largest is {largest:g}"
            )
    return tuple(value / total for value in scaled)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
