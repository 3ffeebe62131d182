"""Runs a function in tasks of a Ray cluster, and gives the results in order.

::

    tasks ──[some for each CPU]──> Ray: work(shared, task) on any node ──> results, in the order of the tasks
                                    └ its process or its node is lost: Ray runs the task again

Called by ``pack``, ``convert`` and ``index`` with ``on="ray"``. Nothing is kept here: a task that was run before finds
what it wrote, or returns it again. Ray is imported when it is used.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

from penstock.errors import ArgumentError, PenstockError, WorkerError
from penstock.registry import require

__all__ = ["connected", "find_node", "is_on_ray", "is_seen", "list_blind_nodes", "run_on_ray"]

_MAX_RETRIES: Final = 10
"""How often a task is run again whose process or node is lost."""
_TASKS_PER_CPU: Final = 2
_LEAST_PENDING: Final = 16
"""Tasks that wait make a cluster grow that adds nodes by itself."""
_CANCEL_S: Final = 10.0
_PROBE_S: Final = 60.0
T_shared = TypeVar("T_shared")
T_task = TypeVar("T_task")
T_result = TypeVar("T_result")


_is_ours = False
"""Whether :func:`connected` has made the connection."""


def is_on_ray(on: str | None) -> bool:
    """Return whether the argument ``on`` says Ray.

    Raises ArgumentError if it is neither None nor "ray".
    """
    if on not in (None, "ray"):
        raise ArgumentError(f"on must be 'ray', or None for this process, got {on!r}")
    return on is not None


@contextlib.contextmanager
def connected() -> Iterator[None]:
    """Use Ray in the block: as the program has initialized it; else the cluster of ``RAY_ADDRESS``, or one here.

    Raises OptionalPackageError if Ray is not installed. Raises WorkerError if it cannot be reached or started.
    """
    ray = require("ray", extra="ray", purpose="for on='ray'")
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(log_to_driver=False, logging_level=logging.WARNING, include_dashboard=False)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise WorkerError(f"Ray cannot be reached or started: {error}; RAY_ADDRESS names a cluster") from error
    global _is_ours  # noqa: PLW0603  # a process has one connection
    _is_ours = True
    try:
        yield
    finally:
        _is_ours = False
        ray.shutdown()


def run_on_ray(
    work: Callable[[T_shared, T_task], T_result], shared: T_shared, tasks: Iterable[T_task], cpus: int = 1
) -> Generator[T_result]:
    """Call ``work(shared, task)`` for each task on the cluster; yields the results in order.

    Parameters
    ----------
    work : callable
        A function of a module. Its results depend on its arguments alone, however often it is called.
    shared : object
        What all tasks have; sent once, and unpickled once in each process.
    tasks : iterable
        Some for each CPU of the cluster are under way.
    cpus : int
        CPUs that Ray reserves for a task.

    Raises
    ------
    ArgumentError
        If ``shared`` cannot be pickled.
    PenstockError
        As ``work`` raises it; ``node`` is added to where it happened.
    WorkerError
        If ``work`` raises something else, or a task was lost too often. Tasks under way are then cancelled, as where
        the caller ends early.
    """
    ray = require("ray", extra="ray")
    try:
        held = [ray.put(ray.cloudpickle.dumps((work, shared)))]  # in a list: Ray would fetch an argument for each task
    except Exception as error:
        raise ArgumentError(f"the source cannot be sent to the nodes of Ray: {error}") from error
    _warn_of_small_nodes(cpus)
    call = ray.remote(num_cpus=cpus, max_retries=_MAX_RETRIES, scheduling_strategy="SPREAD")(_call)
    pending: deque[object] = deque()
    try:
        for task in tasks:
            pending.append(call.remote(held, task))
            if len(pending) >= max(_LEAST_PENDING, _TASKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1)) // cpus):
                yield cast("T_result", _wait_for_first(pending))
        while pending:
            yield cast("T_result", _wait_for_first(pending))
    finally:
        if pending and not _is_ours:  # else they end with the connection: Ray may abort where a task ends meanwhile
            for each in pending:
                ray.cancel(each)
            ray.wait(list(pending), num_returns=len(pending), timeout=_CANCEL_S)


def _wait_for_first(pending: deque[object]) -> object:
    """Return the result of the first task, which is then taken out; raises its error."""
    ray = require("ray", extra="ray")
    try:
        result: object = ray.get(pending[0])
    except ray.exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0]
        raise WorkerError(
            f"a task of Ray was lost, {_MAX_RETRIES + 1} times or for good ({type(error).__name__}: {reason}). What is "
            "finished is kept: run again to resume"
        ) from error
    pending.popleft()
    if isinstance(result, _Failure):
        raise result.error
    return result


@dataclass(frozen=True, slots=True)
class _Failure:
    """What a task raised."""

    error: PenstockError


_shared: dict[str, tuple[Callable[..., object], object]] = {}
"""In a process of Ray: what the tasks of one run have in common, by the number of the object."""


def _call(held: list[object], task: object) -> object:
    """Run a task in a process of Ray; errors are returned, so that Ray does not wrap them."""
    name = str(held[0])
    try:
        if name not in _shared:
            _shared.clear()  # of an earlier run
            ray = require("ray", extra="ray")
            _shared[name] = ray.cloudpickle.loads(ray.get(held[0]))  # not by Ray, which wraps errors of opening
        work, shared = _shared[name]
        return work(shared, task)
    except PenstockError as error:
        return _Failure(error.locate(node=find_node()))
    except Exception as error:  # noqa: BLE001  # the driver raises it
        failure = WorkerError(f"a task of Ray raised {type(error).__name__}: {error}", node=find_node())
        failure.add_note(traceback.format_exc())
        return _Failure(failure)


def find_node() -> str:
    """Return, in a process of Ray, the address of its node, and the beginning of the node's number."""
    ray = require("ray", extra="ray")
    return f"{ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:8]})"


def is_seen(path: Path, content: bytes) -> bool:
    """Return whether this machine sees a file with this content."""
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def list_blind_nodes(path: Path) -> list[str]:
    """Return the nodes of the cluster that do not see a file of this machine; those that do not answer are left out."""
    ray = require("ray", extra="ray")
    on_node = require("ray.util.scheduling_strategies", extra="ray").NodeAffinitySchedulingStrategy
    look, content = ray.remote(num_cpus=0, max_retries=1)(_look), path.read_bytes()
    asked = [
        look.options(scheduling_strategy=on_node(node["NodeID"], soft=False)).remote(str(path), content)
        for node in ray.nodes()
        if node["Alive"]
    ]
    answered, _ = ray.wait(asked, num_returns=len(asked), timeout=_PROBE_S)
    blind = []
    for each in answered:
        with contextlib.suppress(ray.exceptions.RayError):  # the node is lost: no task will run there
            blind += ray.get(each)
    return blind


def _look(path: str, content: bytes) -> list[str]:
    """Return the node, if it does not see a file."""
    return [] if is_seen(Path(path), content) else [find_node()]


def _warn_of_small_nodes(cpus: int) -> None:
    nodes = [int(node["Resources"].get("CPU", 0)) for node in require("ray", extra="ray").nodes() if node["Alive"]]
    if max(nodes, default=0) < cpus:
        warnings.warn(
            f"no node of the Ray cluster has {cpus} CPUs, which a task takes: tasks wait until one is added",
            stacklevel=2,
        )
