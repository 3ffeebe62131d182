"""Makes the actors of a backend, waits for them, and asks them what they are doing.

The connection to Ray is the program's: an initialized Ray is used as it is, and is not shut down.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final, cast

from penstock.errors import ArgumentError, WorkerError
from penstock.registry import require
from penstock.workers.base import Job
from penstock.workers.processes.status import StatusReading
from penstock.workers.processes.transport import RunningWorker
from penstock.workers.ray.actor import WorkerActor, read_status
from penstock.workers.ray.options import RayWorkers
from penstock.workers.ray.running_actor import RunningActor

__all__ = ["RayTransport"]

_logger = logging.getLogger(__name__)

_ANSWER_S: Final = 1.0
"""Longest wait for what actors say of themselves."""
_END_S: Final = 2.0
"""Longest wait for actors that were killed, and for the status of one that is dead."""
_LATE_S: Final = 10.0
"""After so long, the log says that a worker has not started."""


class RayTransport:
    """Makes actors; see :class:`~penstock.workers.processes.transport.Transport`.

    Parameters
    ----------
    options : RayWorkers
        What each actor asks for.

    Attributes
    ----------
    nbytes : int
        Bytes of the largest batch that was received; 0 before the first.
    """

    ray: Any
    job_ref: object

    def __init__(self, options: RayWorkers) -> None:
        self._options, self.node, self.nbytes = options, "", 0
        self._session = "", ""

    def prepare(self, job: Job) -> None:
        """Connect to Ray, and put the job into its object store; raises if it cannot be pickled."""
        ray = self.ray = _connect(self._options.address)
        self._session = self._read_session()
        self.node = self._session[0]
        try:
            self.job_ref = ray.put(ray.cloudpickle.dumps(job))
        except Exception as error:
            error.add_note(f"{type(job.dataset).__name__} must be picklable: with workers='ray' it is sent to actors")
            raise

    def make_actor(self) -> Any:
        """Create an actor, which Ray starts when there is room for it."""
        made = self.ray.remote(concurrency_groups={"control": 1, "end": 1})(WorkerActor)
        return made.options(**self._options.actor_options()).remote()

    def connect(self, worker: int) -> RunningActor:
        """Make a worker that is not started yet."""
        self.check()
        return RunningActor(worker, self)

    def wait(self, workers: Sequence[RunningWorker], timeout_s: float) -> list[int]:
        """Wait until a call of a worker has returned."""
        self.check()
        own = cast("Sequence[RunningActor]", workers)
        positions = {ref: at for at, worker in enumerate(own) for ref in (*worker.replies, worker.last)}
        if not positions:
            time.sleep(timeout_s)
            return []
        ready, _ = self.ray.wait(list(positions), timeout=timeout_s)
        if not ready:
            self._log_late(own)
        return sorted({positions[ref] for ref in ready})

    def _read_session(self) -> tuple[str, str]:
        """Return what tells the connection of this program to Ray from one that is made after ``ray.shutdown()``."""
        context = self.ray.get_runtime_context()
        return context.get_node_id(), context.get_job_id()

    def is_connected(self) -> bool:
        """Whether Ray is the one that the actors are of: after ``ray.shutdown()``, most calls would start another."""
        return bool(self.ray.is_initialized()) and self._read_session() == self._session

    def check(self) -> None:
        """Raise a WorkerError if Ray was shut down."""
        if not self.is_connected():
            raise WorkerError("Ray was shut down while a loader used it; close the loader before ray.shutdown()")

    def _log_late(self, workers: Sequence[RunningActor]) -> None:
        for worker in workers:
            if worker.pid is None and not worker.is_late and time.monotonic() - worker.since > _LATE_S:
                worker.is_late = True
                _logger.warning("a worker has not started after %g seconds: %s", _LATE_S, self._explain_wait())

    def _explain_wait(self) -> str:
        """Return what an actor that has not started waits for."""
        asked, free, there = self._options.requested(), self.ray.available_resources(), self.ray.cluster_resources()
        amounts = ", ".join(f"{name}: {free.get(name, 0):g} of {there.get(name, 0):g} free" for name in asked)
        wanted = ", ".join(f"{name}: {amount:g}" for name, amount in asked.items()) or "nothing"
        return f"each asks Ray for {wanted}; the cluster has {amounts or 'room'}"

    def _ask(self, workers: Sequence[RunningActor], *, with_stacks: bool) -> list[bool]:
        """Ask what they are doing; of each, whether it has answered."""
        asked = [worker.ask(with_stacks=with_stacks) for worker in workers]
        if asked:
            self.ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_S)
        return [worker.note_answer(answer) for worker, answer in zip(workers, asked, strict=True)]

    def refresh(self, workers: Sequence[RunningWorker]) -> None:
        """Ask the actors that have started for their status."""
        if self.is_connected():
            self._ask(
                [one for one in cast("Sequence[RunningActor]", workers) if one.pid is not None], with_stacks=False
            )

    def collect_stacks(self, workers: Sequence[RunningWorker]) -> list[str]:
        """Ask the actors for their stacks; a text says why there is none."""
        own = cast("Sequence[RunningActor]", workers)
        if not self.is_connected():
            return ["(Ray was shut down)"] * len(own)
        answered = self._ask(own, with_stacks=True)
        return [self._describe_stack(worker, has_answered=one) for worker, one in zip(own, answered, strict=True)]

    def _describe_stack(self, worker: RunningActor, *, has_answered: bool) -> str:
        if not has_answered and worker.pid is None:
            worker.note_wait()
            return f"(it has not started: {self._explain_wait()})"
        if not has_answered:
            return "(no answer: the actor is stopped, or its code holds the interpreter's lock)"
        return worker.status.stacks()

    def read_dead(self, node: str, path: str) -> StatusReading | None:
        """Return the last status of an actor that is dead, from the node that it was on; None if that is not there."""
        try:
            if node == self.node:
                return read_status(path)
            if node and self.is_connected() and any(one["NodeID"] == node and one["Alive"] for one in self.ray.nodes()):
                there = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
                read = self.ray.remote(num_cpus=0, scheduling_strategy=there, max_retries=0)(read_status)
                reading: StatusReading = self.ray.get(read.remote(path), timeout=_END_S)
                return reading
        except (OSError, self.ray.exceptions.RayError) as error:
            _logger.debug("the last status of an actor cannot be read: %r", error)
        return None

    def stop(self, workers: Sequence[RunningWorker]) -> None:
        """Kill the actors."""
        own = cast("Sequence[RunningActor]", workers)
        for worker in own:
            worker.kill()
        if self.is_connected():
            self.ray.wait([worker.last for worker in own], num_returns=len(own), timeout=_END_S)
        for worker in own:
            worker.close()

    def max_nbytes(self) -> int:
        """Most bytes of batches that may be under way."""
        if self._options.max_nbytes is not None:
            return self._options.max_nbytes
        here = next(one for one in self.ray.nodes() if one["NodeID"] == self.node)
        return int(here["Resources"].get("object_store_memory", 1 << 62) / 2)


def _connect(address: str | None) -> ModuleType:
    """Return Ray, initialized: as it is, else as ``ray.init()`` finds or starts it."""
    ray = cast("ModuleType", require("ray", extra="ray", purpose="for workers='ray'"))
    require("ray.util.scheduling_strategies")
    if (address or os.environ.get("RAY_ADDRESS", "")).startswith("ray://"):
        raise ArgumentError(
            "workers='ray' needs a program on a node of the cluster, got an address of Ray Client (ray://...); run the "
            "program there, or submit it by `ray job submit`"
        )
    if not ray.is_initialized():
        context = ray.init(address=address)
        _logger.info("workers='ray': ray.init() has connected to %s", context.address_info["gcs_address"])
    return ray
