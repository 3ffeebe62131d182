"""Which processes train together, and which of them this one is: the job's ranks, found without being told.

::

    torch.distributed  ->  ray.train  ->  RANK and WORLD_SIZE  ->  the step of SLURM  ->  one rank

The first that knows is believed. Samplers and programs call :func:`find_world`. In a worker process it gives what the
parent has found, which :func:`hand_world` was called with. Nothing is imported, started or sent.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

from penstock.errors import ArgumentError
from penstock.frameworks import find_ranks, is_imported

__all__ = ["World", "assume_world", "find_world", "hand_world"]


@dataclass(frozen=True, slots=True)
class World:
    """The processes that train together.

    Attributes
    ----------
    num_replicas, rank : int
        Number of processes of the job, and the number of this one in [0, num_replicas).
    local_rank, local_size : int
        The same on this machine: the number of this process among those of its machine, and how many these are. 0 and 1
        where that is unknown.
    source : str
        Where it was found: "torch.distributed", "ray.train", "environment", "slurm"; empty where nothing says that
        there are ranks.

    Raises
    ------
    ArgumentError
        If a number is out of range.
    """

    num_replicas: int = 1
    rank: int = 0
    local_rank: int = 0
    local_size: int = 1
    source: str = ""

    def __post_init__(self) -> None:
        is_rank, is_local = 0 <= self.rank < self.num_replicas, 0 <= self.local_rank < self.local_size
        if not (is_rank and is_local and self.local_size <= self.num_replicas):
            raise ArgumentError(
                "rank must be in [0, num_replicas), local_rank in [0, local_size) and local_size in [1, num_replicas], "
                f"got {self}"
            )


def find_world() -> World:
    """Return the number of ranks and the rank of this process.

    The first of these that knows is believed: ``torch.distributed``, if the program has imported and initialized it;
    the context of Ray Train, in a training function; the variables ``RANK`` and ``WORLD_SIZE``, which torchrun,
    Accelerate and Ray Train set; ``SLURM_PROCID`` and ``SLURM_NTASKS``, in a step that ``srun`` has started. Else there
    is one rank, with an empty ``source``. A worker process of a loader is of the rank of the process that iterates the
    loader. Imports nothing and changes nothing.

    Raises
    ------
    ArgumentError
        If variables of the environment contradict one another, or only one of two is set; they are named.

    Notes
    -----
    Programs that start their processes in another way have no such variables before
    ``torch.distributed.init_process_group``: call this after it.

    Examples
    --------
    >>> import penstock as ps
    >>> world = ps.find_world()
    >>> sampler = ps.ClassBalancedSampler([0, 0, 1], num_replicas=world.num_replicas, rank=world.rank, seed=0)
    """
    return (
        _assumed.get() or _handed or _of_process_group() or _of_ray_train() or _of_variables() or _of_slurm() or World()
    )


_assumed: Final[ContextVar[World | None]] = ContextVar("penstock-world", default=None)
_handed: World | None = None  # to this worker process


@contextlib.contextmanager
def assume_world(world: World) -> Iterator[None]:
    """Have :func:`find_world` return ``world`` while the body runs, in this thread."""
    token = _assumed.set(world)
    try:
        yield
    finally:
        _assumed.reset(token)


def hand_world(world: World | None) -> None:
    """Have :func:`find_world` return ``world`` in this process from now on; None: what it finds itself."""
    global _handed  # noqa: PLW0603  # a worker process has one parent
    _handed = world


def _of_process_group() -> World | None:
    ranks = find_ranks()
    if ranks is None:
        return None
    for find in (_of_variables, _of_slurm):  # they only add what they know of this machine
        with contextlib.suppress(ArgumentError):
            world = find()
            if world is not None and (world.num_replicas, world.rank) == ranks:
                return replace(world, source="torch.distributed")
    return World(*ranks, source="torch.distributed")


def _of_ray_train() -> World | None:
    if not is_imported("ray.train"):
        return None
    try:
        context = sys.modules["ray.train"].get_context()
        size, rank = context.get_world_size(), context.get_world_rank()
        local_rank, local_size = context.get_local_rank(), context.get_local_world_size()
    except (RuntimeError, DeprecationWarning):  # this is no training function; a trial of Ray Tune raises the second
        return None
    # Ray's older context, which is there elsewhere too, counts no rank of the machine.
    return World(size, rank, local_rank, local_size, source="ray.train") if local_size else None


def _of_variables() -> World | None:
    ranks, local = _read_pair("WORLD_SIZE", "RANK"), None
    if ranks is None:
        return None
    if "LOCAL_RANK" in os.environ and "LOCAL_WORLD_SIZE" in os.environ:  # some launchers set the first alone
        local = _read_pair("LOCAL_WORLD_SIZE", "LOCAL_RANK")
    local_size, local_rank = local or (1, 0)
    if local_size > ranks[0]:
        raise ArgumentError(f"LOCAL_WORLD_SIZE must be at most WORLD_SIZE, got {local_size} and {ranks[0]}")
    return World(*ranks, local_rank, local_size, source="environment")


def _of_slurm() -> World | None:
    if "SLURM_STEP_ID" not in os.environ:
        return None  # the script of a job has variables of tasks too, and is none
    ranks = _read_pair("SLURM_NTASKS", "SLURM_PROCID")
    if ranks is None:
        return None
    node, local_rank, local_size = _read("SLURM_NODEID"), _read("SLURM_LOCALID"), 0
    # Such as 4(x2),3: two nodes of 4 tasks, and one of 3.
    for size, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_STEP_TASKS_PER_NODE", "")):
        if node is not None and node >= 0:
            local_size, node = int(size), node - int(times or 1)
    if node is None or node >= 0 or local_rank is None or not local_rank < local_size <= ranks[0]:
        local_rank, local_size = 0, 1
    return World(*ranks, local_rank, local_size, source="slurm")


def _read_pair(of_size: str, of_rank: str) -> tuple[int, int] | None:
    """Read two variables, of which neither or both must be set; or one rank, whose number is not set."""
    size, rank = _read(of_size), _read(of_rank)
    if size is None and rank is None:
        return None
    if size == 1 and rank is None:
        return 1, 0
    if size is None or rank is None:
        given, missing = (of_rank, of_size) if size is None else (of_size, of_rank)
        raise ArgumentError(
            f"the environment has {given}={os.environ[given]} without {missing}: set both, or neither, or call "
            "torch.distributed.init_process_group first"
        )
    if rank >= size:
        raise ArgumentError(f"{of_rank} must be below {of_size} in the environment, got {rank} and {size}")
    return size, rank


def _read(name: str) -> int | None:
    text = os.environ.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentError(f"{name} in the environment must be a non-negative integer, got {text!r}")
    return int(text)
