"""Where an epoch stands, in a form that JSON keeps and that any number of workers can resume.

A state is O(1): seeds, epoch, batches and samples *delivered* (not prefetched), and the parameters that fix the order,
so that a state of another dataset, sampler or batch size is refused by name. Another number of ranks goes on where all
of them together were (:mod:`penstock.loader.order`). What only the user's own sampler or
dataset knows is asked of it and carried along as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.errors import StateError
from penstock.loader.order import Ranks, check_order
from penstock.workers.base import Done

__all__ = ["VERSION", "Progress", "dump", "parse", "shared_out"]

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
    origin : int
        Position in the whole job's order from which batches and samples are counted: not 0 in an epoch that other
        numbers of ranks have begun.
    lost : int
        Samples that were left out of the epoch: what is spent of its ``max_errors``.
    """

    epoch: int = 0
    batches: int = 0
    samples: int = 0
    ahead: dict[int, int] = field(default_factory=dict)
    sampler: Any = None
    dataset: Any = None
    finished: bool = False
    origin: int = 0
    lost: int = 0
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
        return replace(self, ahead=dict(self.ahead), _states={})


def dump(
    progress: Progress, seed: int, sampler_seed: int | None, order: Mapping[str, Any], ranks: Ranks | None = None
) -> dict[str, Any]:
    """The ``state_dict`` of a loader that has come this far."""
    if progress.finished:
        progress = Progress(progress.epoch + 1)
    return {
        "version": VERSION,
        "seed": seed,
        "epoch": progress.epoch,
        "batches": progress.batches,
        "samples": progress.samples,
        "left_out": progress.lost,
        "ahead": [[seq, rows] for seq, rows in sorted(progress.ahead.items())],
        "sampler_seed": sampler_seed,
        "sampler": progress.sampler,
        "dataset": progress.dataset,
        "order": dict(order),
        "ranks": None if ranks is None else {"num_replicas": ranks.num_replicas, "origin": progress.origin},
        "workers": None,
    }


def parse(state: Mapping[str, Any], order: Mapping[str, Any], ranks: Ranks | None = None) -> Progress:
    """The progress that ``state`` describes, for a loader with this order and these ranks.

    Raises
    ------
    StateError
        If it is no such state, of another version, incomplete, or of a loader with another order; the field is named.
    """
    if not isinstance(state, Mapping):
        raise StateError(f"a loader's state is the mapping that state_dict() gives, got {type(state).__name__}")
    version = state.get("version")
    if version != VERSION:
        raise StateError(f"the state's version is {version!r}; this penstock reads version {VERSION}")
    for name in (*_COUNTS, "ahead", "sampler_seed", "sampler", "dataset", "order", "ranks"):
        if name not in state:
            raise StateError(f"the state has no field {name!r}: it is damaged or not a loader's")
    for name in _COUNTS:
        _check_count(name, state[name], least=0)
    try:
        ahead = {int(seq): int(rows) for seq, rows in state["ahead"]}
    except (TypeError, ValueError) as error:
        raise StateError(f"the state's ahead should be pairs of ints, but is {state['ahead']!r:.200}") from error
    progress = Progress(state["epoch"], state["batches"], state["samples"], ahead, state["sampler"], state["dataset"])
    progress.lost = state.get("left_out", 0)
    _check_count("left_out", progress.lost, least=0)
    if ranks is None or state["ranks"] is None:
        check_order(state["order"], order)
        return progress
    return shared_out(progress, state, order, ranks)


def shared_out(progress: Progress, state: Mapping[str, Any], order: Mapping[str, Any], ranks: Ranks) -> Progress:
    """``progress`` as it was on equally many ranks; on others, a new one from where all of them were.

    Parameters
    ----------
    progress : Progress
        What the state says was delivered.
    state : mapping
        Whose ``ranks`` and ``order`` are read.
    order, ranks : mapping, Ranks
        The loader's.

    Raises
    ------
    StateError
        If the order is another one, or is not known to others than as many ranks.
    """
    saved = state["ranks"]
    if not isinstance(saved, Mapping) or {"num_replicas", "origin"} - saved.keys():
        raise StateError(f"the state's ranks should have num_replicas and origin, but are {saved!r:.200}")
    _check_count("ranks.num_replicas", saved["num_replicas"], least=1)
    _check_count("ranks.origin", saved["origin"], least=0)
    progress.origin = saved["origin"]
    theirs = replace(ranks, num_replicas=saved["num_replicas"])
    if theirs == ranks:
        check_order(state["order"], order)
        return progress
    # Positions are consumed, not batches: another number of ranks may cut them into others.
    check_order(state["order"], order, besides=frozenset({"batch_size"}))
    if progress.ahead:
        raise StateError(
            f"the state of {theirs.num_replicas} ranks has batches beyond a gap (in_order=False), of which "
            f"{ranks.num_replicas} ranks cannot be told; resume on {theirs.num_replicas}, or go on from the next epoch"
        )
    consumed = theirs.consumed(progress.origin, progress.samples, progress.batches)
    return Progress(progress.epoch, dataset=progress.dataset, origin=consumed, lost=progress.lost)


def _check_count(name: str, value: Any, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        kind = "a positive" if least else "a non-negative"
        raise StateError(f"the state's {name} should be {kind} int, but is {value!r:.200}")
