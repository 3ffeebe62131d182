"""Our layout of a state: what JSON keeps, and any number of workers can resume.

A state is O(1): seeds, epoch, batches and samples *delivered* (not prefetched), and the parameters that fix the order,
so that a state of another dataset, sampler or batch size is refused by name. On another number of ranks it resumes
where all of them together were (:mod:`penstock.loader.order`). States of the user's own sampler and dataset are kept
as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Final

from penstock.errors import ArgumentError, StateError
from penstock.loader.order import Order, check_count, place_on_ranks
from penstock.loader.position import Position, WorkerPosition, are_equal, join_ranks
from penstock.sample import State, StateDict
from penstock.samplers import DistributedSampler
from penstock.workers.rng_states import dump_worker_rng, parse_worker_rng

__all__ = ["VERSION", "SavedOrder", "dump", "find_states", "merge_states", "parse", "split_merged"]

VERSION: Final = 1

_COUNTS: Final = ("seed", "epoch", "batches", "samples")


def dump(position: Position, seed: int, order: Order) -> StateDict:
    """The ``state_dict`` of a loader at ``position``."""
    if position.finished:
        position = Position(position.epoch + 1)
    ranks = order.ranks
    return {
        "version": VERSION,
        "seed": seed,
        "epoch": position.epoch,
        "batches": position.batches,
        "samples": position.samples,
        "left_out": position.lost,
        "ahead": [[seq, rows] for seq, rows in sorted(position.ahead.items())],
        "sampler_seed": order.sampler_seed,
        "sampler": position.sampler,
        "dataset": None if position.processes else position.workers.get(0, WorkerPosition()).state,
        "order": order.describe(),
        "ranks": None if ranks is None else {"num_replicas": ranks.num_replicas, "origin": position.origin},
        "workers": _dump_workers(position),
    }


def _dump_workers(position: Position) -> StateDict | None:
    """Return what each worker process has drawn, and its states; None where nothing is to be resumed in workers."""
    workers = [position.workers.get(number, WorkerPosition()) for number in range(position.processes)]
    has_states = any(worker.state is not None for worker in workers)
    is_needed = position.is_stream or has_states or any(worker.rng is not None for worker in workers)
    has_begun = position.batches or (position.is_stream and has_states)  # another rank may be further than this one
    if not (workers and has_begun and is_needed):
        return None
    return {
        "last": -1 if position.last_worker is None else position.last_worker,
        "shares": [[worker.samples, worker.state, worker.ended, dump_worker_rng(worker.rng)] for worker in workers],
    }


def merge_states(states: Iterable[Mapping[str, State]]) -> StateDict:
    """Merge the states that the loaders of all ranks took at the same step into one for any number of ranks.

    Needed for streams that are divided anew, such as :class:`~penstock.StreamDataset`: what a rank has read of its
    shards is known to that rank only. Loaders over map-style datasets need no more than the state of any rank.

    Parameters
    ----------
    states : iterable of dict
        What ``state_dict()`` returned on each rank, in any layout, of ``penstock`` or ``penstock.torch``.

    Returns
    -------
    dict
        For ``load_state_dict`` of the same class of loader on each rank, whose number may be another one. JSON-able if
        ``states`` are; a copy.

    Raises
    ------
    StateError
        If there is no state, or one is no mapping. What does not belong together is found by ``load_state_dict``.
    """
    merged: list[StateDict] = []
    for state in states:
        for part in split_merged(state):
            if not any(are_equal(part, other) for other in merged):
                merged.append(dict(part))
    if not merged:
        raise StateError("merge_states needs the states of all ranks, got none")
    return copy.deepcopy({"merged": merged})


def split_merged(state: Mapping[str, State]) -> list[Mapping[str, State]]:
    """The states that :func:`merge_states` was given; of any other state that one. StateError if it is no mapping."""
    given: State = state  # whatever a file held
    if not isinstance(given, Mapping):
        raise StateError(f"a loader's state must be the mapping that state_dict() returns, got {type(given).__name__}")
    merged = state.get("merged")
    if merged is None:
        return [state]
    if not (isinstance(merged, list) and merged and all(isinstance(part, Mapping) for part in merged)):
        raise StateError(f"merged must be a list of states, got {merged!r:.200}")
    return merged


def parse(state: Mapping[str, State], order: Order) -> Position:
    """Return the position that ``state``, or all of a merged one, describes; see :func:`_parse_one`."""
    positions = [_parse_one(part, order) for part in split_merged(state)]
    return join_ranks(positions) if len(positions) > 1 and order.is_stream else positions[0]


def _parse_one(state: Mapping[str, State], order: Order) -> Position:
    """Return the position that ``state`` describes, for a loader with this order.

    Raises
    ------
    StateError
        If it is no such state, of another version, incomplete, or of a loader with another order; the field is named.
    """
    version = state.get("version")
    if version != VERSION:
        raise StateError(f"the state's version must be {VERSION}, got {version!r}")
    for name in (*_COUNTS, "ahead", "sampler_seed", "sampler", "dataset", "order"):  # the first code wrote no ranks
        if name not in state:
            raise StateError(f"the state has no field {name!r}: it is damaged or not a loader's")
    for name in _COUNTS:
        check_count(name, state[name], least=0)
    try:
        ahead = {int(seq): int(rows) for seq, rows in state["ahead"]}
    except (TypeError, ValueError) as error:
        raise StateError(f"the state's ahead must be pairs of ints, got {state['ahead']!r:.200}") from error
    position = Position(state["epoch"], state["batches"], state["samples"], ahead, state["sampler"])
    position.lost, position.is_stream = state.get("left_out", 0), order.is_stream
    check_count("left_out", position.lost, least=0)
    if state["dataset"] is not None or order.is_stream:
        position.workers = {0: WorkerPosition(position.samples, state["dataset"])}
    if state.get("workers") is not None:
        _parse_workers(position, state["workers"])
    return place_on_ranks(position, state, order)


def _parse_workers(position: Position, saved: State) -> None:
    try:
        workers = [_parse_worker(*worker) for worker in saved["shares"]]
        last = int(saved["last"])
        if not (workers and -1 <= last < len(workers)):
            raise ValueError(last)  # noqa: TRY301  # one place says what is wrong
    except StateError:
        raise
    except (TypeError, ValueError, KeyError) as error:
        raise StateError(f"the state's workers must be what each had drawn, got {saved!r:.200}") from error
    position.workers, position.processes = dict(enumerate(workers)), len(workers)
    position.last_worker = None if last < 0 else last


def _parse_worker(samples: object, state: State, ended: bool, rng: State = None) -> WorkerPosition:
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 0:
        raise ValueError(samples)
    return WorkerPosition(samples, state, parse_worker_rng(rng), bool(ended))


def find_states(value: object, at: str = "", depth: int = 12) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the states of loaders that a checkpoint holds, and where: ``loaders.0``."""
    entries = dict(enumerate(value)) if isinstance(value, list | tuple) else value
    if not depth or not isinstance(entries, Mapping):
        return
    if {"penstock", "merged"} & entries.keys() or {*_COUNTS, "order"} <= entries.keys():
        yield at, entries
        return
    for name, inner in entries.items():
        yield from find_states(inner, f"{at}.{name}" if at else str(name), depth - 1)


class SavedOrder:
    """What a state, or the first of merged ones, says of the order that its loader had.

    Raises StateError if it does not say it.
    """

    def __init__(self, state: Mapping[str, object]) -> None:
        first = split_merged(state)[0]
        self.is_torch = "penstock" in first  # of :class:`penstock.torch.DataLoader`
        own = first["penstock"] if self.is_torch else first
        if not isinstance(own, Mapping) or not isinstance(own.get("order"), Mapping):
            raise StateError("the state has no field 'order': it is damaged or not a loader's")
        self._own, self._order, ranks = own, own["order"], own.get("ranks")
        self.num_replicas: int = ranks["num_replicas"] if isinstance(ranks, Mapping) and "num_replicas" in ranks else 1
        check_count("ranks.num_replicas", self.num_replicas, least=1)

    def check_ranks(self, *samplers: object) -> None:
        """Raise ArgumentError if the samplers of a loader are of another number of ranks."""
        here = max(getattr(each, "num_replicas", 1) for each in samplers)
        if here != self.num_replicas:
            raise ArgumentError(
                f"the loader must be of {self.num_replicas} rank(s), as the state is, got one of {here}: set "
                f"WORLD_SIZE={self.num_replicas} and RANK=0, or whatever the script takes them from"
            )

    def choose_arguments(self, dataset: Sized) -> StateDict:
        """Arguments that give a loader this order, if it is an order of all of ``dataset``.

        Raises ArgumentError if it may be another one.
        """
        own, order, sampler = self._own, self._order, self._order.get("sampler") or {}
        kind, seed = sampler.get("type"), order.get("seed") if self.is_torch else own.get("seed")
        cut = {"batch_size": order.get("batch_size"), "drop_last": bool(order.get("drop_last")), "seed": seed}
        if kind in {"RandomSampler", "SequentialSampler"} and not sampler.get("replacement"):
            return {**cut, "shuffle": kind == "RandomSampler"}
        if kind != "DistributedSampler" or "shuffle" not in sampler:
            raise ArgumentError(
                f"a state of {kind} needs the loader itself: it does not say what the sampler draws from"
            )
        ends = self.num_replicas, 0, sampler["shuffle"], own["sampler_seed"] or 0, sampler["drop_last"]
        return {**cut, "sampler": DistributedSampler(dataset, *ends)}
