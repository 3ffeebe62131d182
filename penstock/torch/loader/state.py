"""torchdata's layout of a state: that of its ``StatefulDataLoader``, with one key more.

Its keys are read and written, so that checkpoints can be exchanged; ``"penstock"`` holds what they lack: the beginning
of the epoch (the random states that its order was drawn from), the workers' random states, what fixes the order, and
how many samples each worker has drawn. All of it is O(1) in size, and JSON keeps it if it keeps the states of the
user's own objects.

::

    Position  --dump-->  dict  --parse-->  Resume: a position, how many batches to build again after it, random states
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.errors import StateError
from penstock.loader.order import check_count
from penstock.loader.position import Position, WorkerPosition, join_ranks
from penstock.loader.state import split_merged
from penstock.sample import State, StateDict
from penstock.torch.loader.randomness import Randomness
from penstock.workers.rng_states import dump_worker_rng, parse_worker_rng

__all__ = ["EpochDraws", "Resume", "dump", "parse"]

VERSION: Final = 1


@dataclass(slots=True)
class EpochDraws:
    """What was drawn when an epoch began, so that it can be drawn again."""

    # workers' seeds are made of it; below 0: not drawn yet, or unknown (a state of torchdata's without workers)
    base_seed: int
    before: Randomness | None = None  # before anything was drawn; None: a state of torchdata's, which does not have it
    passes: int = 1  # how often ``iter(index_sampler)`` was called
    draws_seed: bool = True  # whether ``base_seed`` was drawn in this epoch
    begun: bool = False  # whether the sampler has been advanced
    # before the sampler was first advanced, if others had drawn since the epoch began
    advanced: Randomness | None = None


@dataclass(slots=True)
class Resume:
    """What a state asks for."""

    position: Position  # where to go
    replay: int = 0  # batches behind it that were delivered too, and are to be built again for what they do to workers
    # global generators, and those of a loader whose epoch is over, when the state was taken
    now: Randomness | None = None
    # global generators under which the batch was built that a wrapper had read ahead, and whose own are restored later
    ahead: Randomness | None = None
    whole: bool = True  # whether the state is penstock's: torchdata's does not say what each worker has given
    delivered: int = 0  # samples that were delivered, with those of ``replay``
    started: bool = True  # whether the epoch had begun; if not, nothing of it was drawn


def dump(
    live: Position,
    snapshot: Position,
    now: Randomness,
    order: Mapping[str, State],
    length: int | None,
    *,
    started: bool = True,
) -> StateDict:
    """The ``state_dict`` of a loader that has come to ``live``, whose workers said where they were at ``snapshot``.

    ``order``: the fields ``order``, ``ranks`` and ``sampler_seed``. ``length``: ``len(dataset)``, if it was asked for.
    ``started``: whether the epoch has begun. All of it is copied.
    """
    replay = live.batches - snapshot.batches
    of_sampler, of_iterator = copy.deepcopy(snapshot.sampler) or (None, {"samples_yielded": snapshot.samples})
    main = {
        "_sampler_iter_state": of_iterator,
        "_index_sampler_state": of_sampler,
        "_sampler_iter_yielded": snapshot.batches,
        "_IterableDataset_len_called": length,
        "_shared_seed": None,
    }
    state = _of_processes(snapshot, main) if live.processes else _of_one(snapshot, main)
    if live.processes:
        state["_steps_since_snapshot"] = replay
    state["_iterator_finished"] = live.finished
    state["penstock"] = {
        "version": VERSION,
        "epoch": snapshot.epoch,
        "batches": snapshot.batches,
        "samples": snapshot.samples,
        "yielded": snapshot.yielded,
        "ahead": [[seq, rows] for seq, rows in sorted(snapshot.ahead.items())],
        "replay": replay,
        "delivered": live.samples,
        "left_out": live.lost,
        "beginning": _dump_beginning(snapshot.beginning),
        "started": started,
        "now": now.dump(),
        "workers": {
            _key(number): {"samples": worker.samples, "rng": dump_worker_rng(worker.rng)}
            for number, worker in snapshot.workers.items()
        },
        **copy.deepcopy(order),
    }
    return state


def _of_one(position: Position, main: StateDict) -> StateDict:
    dataset_state, fetcher_state = _split(position.worker(0), position)
    return {**main, "_num_yielded": position.yielded, "fetcher_state": fetcher_state, "dataset_state": dataset_state}


def _of_processes(position: Position, main: StateDict) -> StateDict:
    workers = {}
    for worker in range(position.processes):
        dataset_state, fetcher_state = _split(position.workers.get(worker, WorkerPosition()), position)
        workers[_key(worker)] = {
            "worker_id": worker,
            "dataset_state": dataset_state,
            "fetcher_state": fetcher_state,
        }
    last = position.last_worker
    return {
        "_snapshot": {
            "_snapshot_step": position.yielded,
            "_last_yielded_worker_id": position.processes - 1 if last is None else last,
            "_main_snapshot": {
                "_num_workers": position.processes,
                "_base_seed": position.beginning.base_seed,
                **main,
            },
            "_worker_snapshots": workers,
        }
    }


def _key(worker: int) -> str:
    return f"worker_{worker}"


def _split(worker: WorkerPosition, position: Position) -> tuple[State, State]:
    """A worker's state as torchdata keeps it: the dataset's, and for a stream the fetcher's."""
    state = copy.deepcopy(worker.state) or {"dataset": None, "iterator": None, "ended": False}
    if not position.is_stream:
        return state["dataset"], None
    ended = state["ended"] or worker.ended
    return state["dataset"], {"dataset_iter_state": state["iterator"], "fetcher_ended": ended}


def _join_states(saved: Mapping[str, State]) -> State:
    fetcher = saved["fetcher_state"] or {"dataset_iter_state": None, "fetcher_ended": False}
    state = {
        "dataset": saved["dataset_state"],
        "iterator": fetcher["dataset_iter_state"],
        "ended": fetcher["fetcher_ended"],
    }
    return None if state["dataset"] is None and state["iterator"] is None else state


def _dump_beginning(beginning: EpochDraws) -> StateDict:
    before, advanced = beginning.before, beginning.advanced
    return {
        "base_seed": beginning.base_seed,
        "before": None if before is None else before.dump(),
        "passes": beginning.passes,
        "draws_seed": beginning.draws_seed,
        "begun": beginning.begun,
        "advanced": None if advanced is None else advanced.dump(),
    }


def _parse_beginning(saved: Mapping[str, State]) -> EpochDraws:
    before, advanced = saved["before"], saved["advanced"]
    return EpochDraws(
        saved["base_seed"],
        None if before is None else Randomness.parse(before),
        saved["passes"],
        saved["draws_seed"],
        saved["begun"],
        None if advanced is None else Randomness.parse(advanced),
    )


def parse(state: State) -> Resume:
    """Return what ``state`` asks for.

    Raises StateError if it is no state of a loader, or damaged.
    """
    try:
        resumes = [_parse(part) for part in split_merged(state)]
        return resumes[0] if len(resumes) == 1 else _join_ranks(resumes)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, StateError):
            raise
        missing = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise StateError(f"not a loader's state, or a damaged one: {missing:.200}") from error


def _join_ranks(resumes: list[Resume]) -> Resume:
    """Join the states of all ranks. Random states stay with the rank that they were taken on: they are drawn anew."""
    if any(resume.replay or not resume.whole for resume in resumes):
        raise StateError("merged states must be those of penstock.torch.DataLoader, with the states of all workers")
    position = join_ranks([resume.position for resume in resumes])
    position.beginning = EpochDraws(-1)
    return Resume(position, delivered=position.samples, started=all(resume.started for resume in resumes))


def _parse(state: Mapping[str, State]) -> Resume:
    if "_snapshot" in state:
        snapshot = state["_snapshot"]
        main, workers = snapshot["_main_snapshot"], snapshot["_worker_snapshots"]
        position = Position(
            processes=int(main["_num_workers"]), yielded=int(snapshot["_snapshot_step"]),
            last_worker=int(snapshot["_last_yielded_worker_id"]), beginning=EpochDraws(int(main["_base_seed"])),
            workers={int(saved["worker_id"]): WorkerPosition(state=_join_states(saved)) for saved in workers.values()},
        )  # fmt: skip
        replay = int(state["_steps_since_snapshot"])
    else:
        main, replay = state, 0
        position = Position(
            yielded=int(state["_num_yielded"]),
            beginning=EpochDraws(-1),
            workers={0: WorkerPosition(state=_join_states(state))},
        )
    sampler = main["_index_sampler_state"], main["_sampler_iter_state"]
    position.sampler, position.finished = sampler, bool(state["_iterator_finished"])
    position.batches = int(main["_sampler_iter_yielded"])
    if "penstock" not in state:
        return Resume(position, replay, whole=False)
    return _add_own_part(position, state["penstock"])


def _add_own_part(position: Position, saved: Mapping[str, State]) -> Resume:
    # The first code wrote neither, and resumed on as many ranks only, where what was delivered is not asked for.
    own = {"delivered": saved["samples"], "left_out": 0, **saved}
    if own["version"] != VERSION:
        raise StateError(f"the state's version must be {VERSION}, got {own['version']!r}")
    for name in ("epoch", "batches", "samples", "yielded", "replay", "delivered", "left_out"):
        check_count(name, own[name], least=0)
    position.epoch, position.batches, position.samples = own["epoch"], own["batches"], own["samples"]
    position.yielded = own["yielded"]
    position.ahead = {int(seq): int(rows) for seq, rows in own["ahead"]}
    position.beginning = _parse_beginning(own["beginning"])
    for name, kept in own["workers"].items():
        worker = position.worker(int(name.removeprefix("worker_")))
        worker.samples, worker.rng = int(kept["samples"]), parse_worker_rng(kept["rng"])
    started = bool(own.get("started", True))
    return Resume(position, own["replay"], Randomness.parse(own["now"]), delivered=own["delivered"], started=started)
