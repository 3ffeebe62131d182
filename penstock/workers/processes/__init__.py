"""Worker processes: batches are built in shared memory; the death of a worker or of the parent is handled.

Read in this order: :mod:`~penstock.workers.processes.backend` (what the loader calls), ``restart_limits`` (how many
workers may die) and ``worker_process`` (the parent's side), ``transport`` (what may carry it: the actors of
:mod:`penstock.workers.ray` do too), ``running_process`` (processes), ``worker`` (the child's side), ``messages`` (what
goes between them), ``sockets`` and ``memory`` (how it goes).
"""

from __future__ import annotations

from penstock.workers.processes.running_process import ProcessBackend

__all__ = ["ProcessBackend"]
