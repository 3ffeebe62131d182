"""Which processes train together, and which of them this one is: the job's ranks, found without being told.

::

    torch.distributed  ->  ray.train  ->  RANK and WORLD_SIZE  ->  the step of SLURM  ->  one rank

The first that knows is believed. Samplers and programs call :func:`find_world`. Nothing is imported, started or sent.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass

from penstock.errors import ArgumentError
from penstock.frameworks import find_ranks, is_imported

__all__ = ["World", "find_world"]


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
        if not 0 <= self.rank < self.num_replicas:
            raise ArgumentError(
                f"rank must be in [0, num_replicas), got rank={self.rank} and num_replicas={self.num_replicas}"
            )
        if not 0 <= self.local_rank < self.local_size <= self.num_replicas:
            raise ArgumentError(
                "local_rank must be in [0, local_size), and local_size at most num_replicas, got "
                f"local_rank={self.local_rank}, local_size={self.local_size} and num_replicas={self.num_replicas}"
            )


def find_world() -> World:
    """The number of ranks and the rank of this process.

    Returns
    -------
    World
        Of the first of these that knows: ``torch.distributed``, if the program has imported and initialized it; the
        context of Ray Train, in a training function; the variables ``RANK`` and ``WORLD_SIZE``, which torchrun,
        Accelerate and Ray Train set; ``SLURM_PROCID`` and ``SLURM_NTASKS``, in a step that ``srun`` has started. Else
        one rank, with an empty ``source``.

    Raises
    ------
    ArgumentError
        If variables of the environment contradict one another, or only one of two is set; they are named.

    Notes
    -----
    Imports nothing and changes nothing. Programs that start their processes in another way have no such variables
    before ``torch.distributed.init_process_group``: call this after it.

    Examples
    --------
    >>> import penstock as ps
    >>> world = ps.find_world()
    >>> sampler = ps.ClassBalancedSampler([0, 0, 1], num_replicas=world.num_replicas, rank=world.rank, seed=0)
    """
    return _of_process_group() or _of_ray_train() or _of_variables() or _of_slurm() or World()


def _of_process_group() -> World | None:
    found = find_ranks()
    if found is None:
        return None
    num_replicas, rank = found
    given = os.environ.get("WORLD_SIZE"), os.environ.get("RANK")
    of_step = os.environ.get("SLURM_NTASKS"), os.environ.get("SLURM_PROCID")
    local = (0, 1)  # a program that starts its processes itself says so to nobody
    if given == (str(num_replicas), str(rank)):
        local = _local_of_variables(num_replicas)
    elif "SLURM_STEP_ID" in os.environ and of_step == (str(num_replicas), str(rank)):
        local = _local_of_slurm(num_replicas)
    return World(num_replicas, rank, *local, source="torch.distributed")


def _of_ray_train() -> World | None:
    if not is_imported("ray.train"):
        return None
    try:
        context = sys.modules["ray.train"].get_context()
        size, rank = context.get_world_size(), context.get_world_rank()
        local_rank, local_size = context.get_local_rank(), context.get_local_world_size()
    except (RuntimeError, DeprecationWarning):  # this is no training function; a trial of Ray Tune raises the second
        return None
    if not local_size:  # so says Ray's older context, which is there elsewhere too
        return None
    return World(size, rank, local_rank, local_size, source="ray.train")


def _of_variables() -> World | None:
    num_replicas, rank = _read_pair("WORLD_SIZE", "RANK")
    if num_replicas is None or rank is None:
        return None
    return World(num_replicas, rank, *_local_of_variables(num_replicas), source="environment")


def _local_of_variables(num_replicas: int) -> tuple[int, int]:
    if "LOCAL_RANK" not in os.environ or "LOCAL_WORLD_SIZE" not in os.environ:
        return 0, 1  # some launchers set the first alone
    size, rank = _read_pair("LOCAL_WORLD_SIZE", "LOCAL_RANK")
    if size is None or rank is None:
        return 0, 1
    if size > num_replicas:
        raise ArgumentError(f"LOCAL_WORLD_SIZE must be at most WORLD_SIZE, got {size} and {num_replicas}")
    return rank, size


def _of_slurm() -> World | None:
    if "SLURM_STEP_ID" not in os.environ:
        return None  # the script of a job has variables of tasks too, and is none
    num_replicas, rank = _read_pair("SLURM_NTASKS", "SLURM_PROCID")
    if num_replicas is None or rank is None:
        return None
    return World(num_replicas, rank, *_local_of_slurm(num_replicas), source="slurm")


def _local_of_slurm(num_replicas: int) -> tuple[int, int]:
    """By ``SLURM_STEP_TASKS_PER_NODE``, such as ``4(x2),3``: two nodes of 4 tasks, and one of 3."""
    parts = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node, rank = (_read(name) for name in ("SLURM_NODEID", "SLURM_LOCALID"))
    if node is None or rank is None:
        return 0, 1
    for size, times in parts:
        node -= int(times or 1)
        if node < 0:
            return (rank, int(size)) if rank < int(size) <= num_replicas else (0, 1)
    return 0, 1


def _read_pair(of_size: str, of_rank: str) -> tuple[int | None, int | None]:
    """Both variables, of which neither or both must be set; or one rank, whose number is not set."""
    size, rank = (_read(name) for name in (of_size, of_rank))
    if size is None and rank is None:
        return None, None
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
