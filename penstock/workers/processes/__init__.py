"""Worker processes: batches are built in shared memory; the death of a worker or of the parent is handled.

Read in this order: :mod:`~penstock.workers.processes.backend` (what the loader calls) and ``worker_process`` (the
parent's side), ``worker`` (the child's side), ``messages`` (what goes between them), ``sockets`` with ``channel``
and ``memory`` (how it goes).
"""

from __future__ import annotations

from penstock.workers.processes.backend import ProcessBackend

__all__ = ["ProcessBackend"]
