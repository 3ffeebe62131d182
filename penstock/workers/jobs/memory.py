"""Memory for a batch: a lease on a slot, or an error that says how large the batch is.

Called by jobs that fill, in the worker that builds the batch. A batch larger than the machine's memory is refused
before it is allocated: Linux promises more memory than it has, and would kill the process later without an error.
"""

from __future__ import annotations

import functools
import os
from typing import Protocol

from penstock.errors import BatchMemoryError
from penstock.sample import tree_leaves
from penstock.wording import format_bytes
from penstock.workers.slots import BatchLayout, Lease

__all__ = ["SlotSource", "lease", "physical_nbytes"]


class SlotSource(Protocol):
    """Where slots come from: a :class:`~penstock.workers.slots.SlotPool`, or the memory of a worker process."""

    def take(self, nbytes: int) -> Lease:
        """A lease on a slot of at least ``nbytes``."""
        ...


def lease(pool: SlotSource, layout: BatchLayout, spare_nbytes: int = 0) -> Lease:
    """A slot of ``pool`` for a batch of this layout, with ``spare_nbytes`` behind its arrays.

    Raises
    ------
    BatchMemoryError
        If there is not enough memory.
    """
    nbytes = layout.nbytes + spare_nbytes
    if nbytes > physical_nbytes():
        raise _too_large(layout, nbytes, f"this machine has {format_bytes(physical_nbytes())} of memory")
    try:
        return pool.take(nbytes)
    except (OSError, MemoryError, OverflowError, ValueError) as error:
        raise _too_large(layout, nbytes, f"the system refuses so much memory ({error})") from error


@functools.cache
def physical_nbytes() -> int:
    """Bytes of memory that the machine has; 2**62 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def _too_large(layout: BatchLayout, nbytes: int, why: str) -> BatchMemoryError:
    sample = ", ".join(f"{leaf.shape} {leaf.dtype}" for leaf in tree_leaves(layout.spec))
    return BatchMemoryError(
        f"a batch of {layout.rows} samples takes {format_bytes(nbytes)}, and {why}; a sample is {sample}. Lower "
        "batch_size, or have the transform give smaller samples"
    )
