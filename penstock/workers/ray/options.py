"""``workers=RayWorkers(...)``: which actors a loader asks Ray for. Imports nothing of Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import ArgumentError

__all__ = ["RayWorkers", "workers_kind"]


@dataclass(frozen=True, slots=True)
class RayWorkers:
    """Workers that are actors of Ray, with what each asks for; ``workers="ray"`` stands for ``RayWorkers()``.

    Parameters
    ----------
    num_cpus, num_gpus : float
        CPUs and GPUs that Ray reserves for each worker. A worker starts when they are free.
    memory_nbytes : int, optional
        Bytes of memory that Ray reserves for each worker.
    resources : mapping of str to float, optional
        Other resources of each worker, by the names that the cluster gives them.
    scheduling_strategy : object
        Ray's: "SPREAD", "DEFAULT", or an object of ``ray.util.scheduling_strategies``, such as
        ``NodeAffinitySchedulingStrategy`` where a store lies on one node. "SPREAD" also lets workers of a loader inside
        Ray Train use CPUs outside of the trainer's placement group.
    runtime_env : mapping, optional
        Ray's runtime environment of the workers.
    address : str, optional
        The cluster's address, if Ray is not initialized yet. None: as ``ray.init()`` finds it.
    max_nbytes : int, optional
        Most bytes of batches under way. None: half of the object store of the trainer's node. Every worker may have one
        batch under way, however large.

    Raises
    ------
    ArgumentError
        If a number is negative.
    """

    num_cpus: float = 1
    num_gpus: float = 0
    memory_nbytes: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict, hash=False)
    scheduling_strategy: object = "SPREAD"
    runtime_env: Mapping[str, object] | None = field(default=None, hash=False)
    address: str | None = None
    max_nbytes: int | None = None

    def __post_init__(self) -> None:
        numbers: dict[str, object] = {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, **self.resources}
        numbers |= {"memory_nbytes": self.memory_nbytes or 0, "max_nbytes": self.max_nbytes or 0}
        for name, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
                raise ArgumentError(f"{name} of RayWorkers must be a number of at least 0, got {number!r}")

    def requested(self) -> dict[str, float]:
        """Return what each worker asks for, by Ray's names of resources."""
        asked = {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": self.memory_nbytes or 0, **self.resources}
        return {name: amount for name, amount in asked.items() if amount}

    def actor_options(self) -> dict[str, object]:
        """Options of an actor, as ``ray.remote`` takes them."""
        return {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "memory": self.memory_nbytes,
            "resources": dict(self.resources),
            "scheduling_strategy": self.scheduling_strategy,
            "runtime_env": None if self.runtime_env is None else dict(self.runtime_env),
            "max_restarts": 0,
            "max_task_retries": 0,
        }


def workers_kind(workers: str | RayWorkers) -> str:
    """The name of the backend, or "auto", that a loader's ``workers=`` stands for."""
    return "ray" if isinstance(workers, RayWorkers) else workers
