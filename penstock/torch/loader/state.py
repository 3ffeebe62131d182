"""Where an epoch stands, in the layout of torchdata's ``StatefulDataLoader`` and with what that lacks.

Its keys are read and written, so that checkpoints move over; beside them, ``"penstock"`` holds the beginning of the
epoch (the random states that its order was drawn from), the workers' random states, what fixes the order, and how many
samples each worker gave. All of it is O(1) in size, and JSON keeps it if it keeps the states of the user's own objects.

::

    Position  --dump-->  dict  --parse-->  Resume: a position, how many batches to run again behind it, random states
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.errors import StateError
from penstock.loader.state import Progress
from penstock.torch.loader.plan import SamplerState
from penstock.torch.loader.randomness import Randomness, worker_bytes, worker_state
from penstock.workers.base import NOTHING, Done

__all__ = ["Beginning", "Position", "Resume", "Share", "dump", "parse", "redistribute"]

VERSION: Final = 1


@dataclass(slots=True)
class Beginning:
    """What was drawn when an epoch began, so that it can be drawn again.

    Parameters
    ----------
    base_seed : int
        Workers' seeds are made of it; below 0: not drawn yet, or not known (a state of torchdata's without workers).
    before : Randomness, optional
        Before anything was drawn; None: a state of torchdata's, which does not say.
    passes : int
        How often ``iter(index_sampler)`` was called.
    draws_seed : bool
        Whether ``base_seed`` was drawn in this epoch.
    begun : bool
        Whether the sampler has been advanced.
    advanced : Randomness, optional
        Before the sampler was first advanced, if others had drawn since the epoch began.
    """

    base_seed: int
    before: Randomness | None = None
    passes: int = 1
    draws_seed: bool = True
    begun: bool = False
    advanced: Randomness | None = None


@dataclass(slots=True)
class Share:
    """What one worker has given in this epoch; without processes there is one share, of worker 0.

    Parameters
    ----------
    samples : int
        How many.
    state : dict, optional
        What dataset and iterator say of themselves: ``dataset``, ``iterator``, ``ended``.
    rng : bytes, optional
        Its random generators, as :attr:`penstock.workers.Done.rng` has them.
    ended : bool
        Whether its stream has come to its end.
    """

    samples: int = 0
    state: Any = None
    rng: bytes | None = None
    ended: bool = False


@dataclass(slots=True)
class Position(Progress):
    """How far an epoch has been delivered; counted by the iterator, read by the loader.

    Parameters
    ----------
    beginning : Beginning
        Of the epoch.
    processes : int
        Worker processes, each with a share; 0: one share.
    iterable : bool
        Whether the dataset is a stream.
    yielded : int
        Batches delivered, without those that were errors.
    last_worker : int, optional
        Whose batch was delivered last.
    shares : dict
        By worker.
    """

    beginning: Beginning = field(default_factory=lambda: Beginning(0))
    processes: int = 0
    iterable: bool = False
    yielded: int = 0
    last_worker: int | None = None
    shares: dict[int, Share] = field(default_factory=dict)

    @property
    def streams(self) -> bool:
        """Whether each process iterates a stream of its own: batches then have no place in one order."""
        return self.iterable and self.processes > 0

    def deliver(self, done: Done) -> None:
        """Count one batch."""
        share = self.mark(done)
        share.samples += done.rows
        if done.worker is not None:  # not an error of the sampler's
            self.last_worker = done.worker
        self.yielded += done.error is None and done.batch is not NOTHING
        if self.streams:
            self.batches += 1
            self.samples += done.rows
            return
        Progress.deliver(self, done)

    def mark(self, done: Done) -> Share:
        """Keep what a worker says of itself."""
        share = self.shares.setdefault(done.worker or 0, Share())
        if done.state is not None:
            share.state = done.state
        if done.rng is not None:
            share.rng = done.rng
        return share

    def copy(self) -> Position:
        """See :meth:`penstock.loader.state.Progress.copy`."""
        shares = {worker: replace(share) for worker, share in self.shares.items()}
        return replace(self, ahead=dict(self.ahead), shares=shares, _states=dict(self._states))


@dataclass(slots=True)
class Resume:
    """What a state asks for.

    Parameters
    ----------
    position : Position
        Where to go.
    replay : int
        Batches behind it that were delivered too, and are to be built again for what they do to workers.
    now : Randomness, optional
        Global generators, and those of a loader whose epoch is over, when the state was taken.
    whole : bool
        Whether the state is penstock's: torchdata's does not say what each worker has given.
    delivered : int
        Samples that were delivered, with those of ``replay``.
    started : bool
        Whether the epoch had begun; if not, nothing of it was drawn.
    """

    position: Position
    replay: int = 0
    now: Randomness | None = None
    whole: bool = True
    delivered: int = 0
    started: bool = True


def dump(
    live: Position,
    snapshot: Position,
    now: Randomness,
    order: Mapping[str, Any],
    length: Any,
    *,
    started: bool = True,
) -> dict[str, Any]:
    """The ``state_dict`` of a loader that has come to ``live``, whose workers said where they were at ``snapshot``.

    ``order``: the fields ``order``, ``ranks`` and ``sampler_seed``. ``length``: ``len(dataset)``, if it was asked for.
    ``started``: whether the epoch has begun. What the user's own objects say is copied.
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
        "beginning": _beginning_text(snapshot.beginning),
        "started": started,
        "now": now.dump(),
        "workers": {
            _key(worker): {"samples": share.samples, "rng": worker_state(share.rng)}
            for worker, share in snapshot.shares.items()
        },
        **order,
    }
    return state


def _of_one(position: Position, main: dict[str, Any]) -> dict[str, Any]:
    dataset_state, fetcher_state = _split(position.shares.get(0, Share()), position)
    return {**main, "_num_yielded": position.yielded, "fetcher_state": fetcher_state, "dataset_state": dataset_state}


def _of_processes(position: Position, main: dict[str, Any]) -> dict[str, Any]:
    workers = {}
    for worker in range(position.processes):
        dataset_state, fetcher_state = _split(position.shares.get(worker, Share()), position)
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


def _split(share: Share, position: Position) -> tuple[Any, Any]:
    """A share's state as torchdata keeps it: the dataset's, and for a stream the fetcher's."""
    state = copy.deepcopy(share.state) or {"dataset": None, "iterator": None, "ended": False}
    if not position.iterable:
        return state["dataset"], None
    ended = state["ended"] or share.ended
    return state["dataset"], {"dataset_iter_state": state["iterator"], "fetcher_ended": ended}


def _joined(saved: Mapping[str, Any]) -> Any:
    fetcher = saved["fetcher_state"] or {"dataset_iter_state": None, "fetcher_ended": False}
    state = {
        "dataset": saved["dataset_state"],
        "iterator": fetcher["dataset_iter_state"],
        "ended": fetcher["fetcher_ended"],
    }
    return None if state["dataset"] is None and state["iterator"] is None else state


def _beginning_text(beginning: Beginning) -> dict[str, Any]:
    before, advanced = beginning.before, beginning.advanced
    return {
        "base_seed": beginning.base_seed,
        "before": None if before is None else before.dump(),
        "passes": beginning.passes,
        "draws_seed": beginning.draws_seed,
        "begun": beginning.begun,
        "advanced": None if advanced is None else advanced.dump(),
    }


def _beginning(saved: Mapping[str, Any]) -> Beginning:
    before, advanced = saved["before"], saved["advanced"]
    return Beginning(
        saved["base_seed"],
        None if before is None else Randomness.parse(before),
        saved["passes"],
        saved["draws_seed"],
        saved["begun"],
        None if advanced is None else Randomness.parse(advanced),
    )


def parse(state: Any) -> Resume:
    """What ``state`` asks for.

    Raises
    ------
    StateError
        If it is no state of a loader, or damaged.
    """
    if not isinstance(state, Mapping):
        raise StateError(f"a loader's state is a mapping, not {type(state).__name__}")
    try:
        return _parsed(state)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, StateError):
            raise
        missing = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise StateError(f"not a loader's state, or a damaged one: {missing:.200}") from error


def _parsed(state: Mapping[str, Any]) -> Resume:
    if "_snapshot" in state:
        snapshot = state["_snapshot"]
        main, workers = snapshot["_main_snapshot"], snapshot["_worker_snapshots"]
        position = Position(
            processes=int(main["_num_workers"]), yielded=int(snapshot["_snapshot_step"]),
            last_worker=int(snapshot["_last_yielded_worker_id"]), beginning=Beginning(int(main["_base_seed"])),
            shares={int(saved["worker_id"]): Share(state=_joined(saved)) for saved in workers.values()},
        )  # fmt: skip
        replay = int(state["_steps_since_snapshot"])
    else:
        main, replay = state, 0
        position = Position(
            yielded=int(state["_num_yielded"]), beginning=Beginning(-1), shares={0: Share(state=_joined(state))}
        )
    sampler: SamplerState = main["_index_sampler_state"], main["_sampler_iter_state"]
    position.sampler, position.finished = sampler, bool(state["_iterator_finished"])
    position.batches = int(main["_sampler_iter_yielded"])
    if "penstock" not in state:
        return Resume(position, replay, whole=False)
    return _completed(position, state["penstock"])


def _completed(position: Position, own: Mapping[str, Any]) -> Resume:
    if own["version"] != VERSION:
        raise StateError(f"the state's version is {own['version']!r}; this penstock reads version {VERSION}")
    for name in ("epoch", "batches", "samples", "yielded", "replay", "delivered", "left_out"):
        if isinstance(own[name], bool) or not isinstance(own[name], int) or own[name] < 0:
            raise StateError(f"the state's {name} should be a non-negative int, but is {own[name]!r}")
    position.epoch, position.batches, position.samples = own["epoch"], own["batches"], own["samples"]
    position.yielded = own["yielded"]
    position.ahead = {int(seq): int(rows) for seq, rows in own["ahead"]}
    position.beginning = _beginning(own["beginning"])
    for name, saved in own["workers"].items():
        share = position.shares.setdefault(int(name.removeprefix("worker_")), Share())
        share.samples, share.rng = int(saved["samples"]), worker_bytes(saved["rng"])
    started = bool(own.get("started", True))
    return Resume(position, own["replay"], Randomness.parse(own["now"]), delivered=own["delivered"], started=started)


def redistribute(position: Position, processes: int, *, stream: bool) -> None:
    """Give what each worker said to the ``processes`` that there are now.

    Raises
    ------
    StateError
        If that cannot be: each replica of a stream goes its own way, and so may each copy of a dataset with a state.
    """
    old, new = position.processes, processes
    shares = [position.shares.get(worker, Share()) for worker in range(max(1, old))]
    position.processes, position.iterable = new, stream
    if old == new:
        return
    told = [share.state for share in shares if share.state is not None]
    if max(1, old) == max(1, new):
        position.shares = {0: Share(shares[0].samples, shares[0].state)}
        position.last_worker = None
    elif stream and (told or position.batches):
        taken = f"with {old} worker process(es), each with a stream of its own" if old else "of one stream"
        raise StateError(
            f"the state was taken {taken}, and this loader has {new or 'no'} worker process(es): where each of its "
            f"streams would stand cannot be told; give num_workers={old}"
        )
    elif any(not _same(state, told[0]) for state in told):
        raise StateError(
            f"the state was taken with {old} worker process(es), whose datasets have gone different ways, and this "
            f"loader has {new}; give num_workers={old}"
        )
    else:
        position.shares = {worker: Share(state=told[0]) for worker in range(max(1, new))} if told else {}
        position.last_worker = None


def _same(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except (ValueError, RuntimeError):  # arrays: which of them are equal is more than is asked
        return False
