"""Worker backends: who executes tasks. One new backend is one new file and one line here.

The line also enrols it in ``tests/conformance/test_workers.py``. Backends of a loader's ``workers=`` argument are
named here and imported when they are used.

Where to find what:

- what is done with a task: ``jobs/``
- who owns a batch's memory, and when it is used again: ``slots.py``; between processes: ``processes/memory.py``
- how worker processes are started, fed, watched and replaced: ``processes/``; ``docs/decisions/0007-*``,
  ``docs/decisions/0008-*``
- what becomes of samples that cannot be built: ``left_out.py``
- who looks ahead to tasks: ``LoaderJob.prefetch`` in ``jobs/base.py``
- how stacks are read: ``stack_frames.py``
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
