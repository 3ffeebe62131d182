"""Worker backends: who executes tasks. One new backend is one new file and one line here.

The line also enrols it in ``tests/conformance/test_workers.py``. Backends of a loader's ``workers=`` argument are
named here and imported when they are used.
"""

from __future__ import annotations

from penstock.registry import Registry
from penstock.workers.base import END, NOTHING, Backend, BatchBuild, Capabilities, Job, Task, TaskResult, WorkerStart
from penstock.workers.info import WorkerInfo, get_worker_info

__all__ = [
    "BACKENDS",
    "END",
    "NOTHING",
    "Backend",
    "BatchBuild",
    "Capabilities",
    "Job",
    "Task",
    "TaskResult",
    "WorkerInfo",
    "WorkerStart",
    "get_worker_info",
]

BACKENDS = Registry("worker backend")
BACKENDS.register("serial", "penstock.workers.serial:SerialBackend")
BACKENDS.register("threads", "penstock.workers.threads:ThreadBackend")
BACKENDS.register("processes", "penstock.workers.processes:ProcessBackend")
BACKENDS.register("ray", "penstock.workers.ray.backend:RayBackend")
