"""Where an epoch stands, in a form that JSON keeps and that any number of workers can resume.

A state is O(1): seeds, epoch, batches and samples *delivered* (not prefetched), and the parameters that fix the order,
so that a state of another dataset, sampler or batch size is refused by name. What only the user's own sampler or
dataset knows is asked of it and carried along as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.errors import StateError
from penstock.workers.base import Done

__all__ = ["VERSION", "Progress", "dump", "parse"]

VERSION: Final = 1

_COUNTS: Final = ("seed", "epoch", "batches", "samples")


@dataclass(slots=True)
class Progress:
    """How far an epoch has been delivered.

    Parameters
    ----------
    epoch : int
        Which one.
    batches, samples : int
        Delivered without a gap from the epoch's start.
    ahead : dict
        Batches delivered beyond a gap (``in_order=False``): number to the number of their samples.
    sampler, dataset : object
        State of the user's sampler and dataset after the last batch counted, if they have one.
    """

    epoch: int = 0
    batches: int = 0
    samples: int = 0
    ahead: dict[int, int] = field(default_factory=dict)
    sampler: Any = None
    dataset: Any = None
    finished: bool = False
    _states: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def deliver(self, done: Done) -> None:
        """Count one batch."""
        self.ahead[done.seq] = done.rows
        self._states[done.seq] = (None if done.task is None else done.task.sampler_state, done.state)
        while self.batches in self.ahead:
            self.samples += self.ahead.pop(self.batches)
            self.sampler, self.dataset = self._states.pop(self.batches, (self.sampler, self.dataset))
            self.batches += 1

    def copy(self) -> Progress:
        """An independent copy, as a new iterator begins with."""
        return Progress(
            self.epoch, self.batches, self.samples, dict(self.ahead), self.sampler, self.dataset, self.finished
        )


def dump(progress: Progress, seed: int, sampler_seed: int | None, order: Mapping[str, Any]) -> dict[str, Any]:
    """The ``state_dict`` of a loader that has come this far."""
    if progress.finished:
        progress = Progress(progress.epoch + 1)
    return {
        "version": VERSION,
        "seed": seed,
        "epoch": progress.epoch,
        "batches": progress.batches,
        "samples": progress.samples,
        "ahead": [[seq, rows] for seq, rows in sorted(progress.ahead.items())],
        "sampler_seed": sampler_seed,
        "sampler": progress.sampler,
        "dataset": progress.dataset,
        "order": dict(order),
    }


def parse(state: Mapping[str, Any], order: Mapping[str, Any]) -> Progress:
    """The progress that ``state`` describes.

    Raises
    ------
    StateError
        If it is no such state, of another version, incomplete, or of a loader with another order; the field is named.
    """
    if not isinstance(state, Mapping):
        raise StateError(f"a loader's state is a mapping, not {type(state).__name__}")
    version = state.get("version")
    if version != VERSION:
        raise StateError(f"the state's version is {version!r}; this penstock reads version {VERSION}")
    for name in (*_COUNTS, "ahead", "sampler_seed", "sampler", "dataset", "order"):
        if name not in state:
            raise StateError(f"the state has no field {name!r}: it is damaged or not a loader's")
    for name in _COUNTS:
        if isinstance(state[name], bool) or not isinstance(state[name], int) or state[name] < 0:
            raise StateError(f"the state's {name} should be a non-negative int, but is {state[name]!r}")
    _check_order(state["order"], order, "")
    try:
        ahead = {int(seq): int(rows) for seq, rows in state["ahead"]}
    except (TypeError, ValueError) as error:
        raise StateError(f"the state's ahead should be pairs of ints, but is {state['ahead']!r:.200}") from error
    return Progress(state["epoch"], state["batches"], state["samples"], ahead, state["sampler"], state["dataset"])


def _check_order(theirs: Any, ours: Mapping[str, Any], at: str) -> None:
    if not isinstance(theirs, Mapping):
        raise StateError(f"the state's order{at} should be a mapping, but is {theirs!r:.200}")
    for name in {**ours, **theirs}:
        mine, saved = ours.get(name), theirs.get(name)
        if isinstance(mine, Mapping) and isinstance(saved, Mapping):
            _check_order(saved, mine, f"{at}.{name}")
        elif mine != saved:
            raise StateError(
                f"the state was taken with {(at + '.' + name).lstrip('.')}={saved!r}, this loader has {mine!r}: "
                "its order of samples is another one"
            )
