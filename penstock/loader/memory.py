"""Whether there is memory for a batch: a lease on a slot, or an error that says how large the batch is.

Called by jobs that fill, in whatever worker builds the batch. A batch larger than the machine's memory is refused
before it is asked for: where the system promises more memory than it has, the process would be killed later, in
silence.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from penstock.errors import BatchMemoryError
from penstock.sample import tree_leaves
from penstock.slots import Layout

__all__ = ["lease", "physical_nbytes"]


def lease(pool: Any, layout: Layout) -> Any:
    """A slot of ``pool`` for a batch of this layout.

    Raises
    ------
    BatchMemoryError
        If there is not so much memory.
    """
    if layout.nbytes > physical_nbytes():
        raise _too_large(layout, f"this machine has {_amount(physical_nbytes())} of memory")
    try:
        return pool.take(layout.nbytes)
    except (OSError, MemoryError, OverflowError, ValueError) as error:
        raise _too_large(layout, f"the system refuses so much memory ({error})") from error


@functools.cache
def physical_nbytes() -> int:
    """Bytes of memory that the machine has; an unreachable number where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def _too_large(layout: Layout, why: str) -> BatchMemoryError:
    sample = ", ".join(f"{leaf.shape} {leaf.dtype}" for leaf in tree_leaves(layout.spec))
    return BatchMemoryError(
        f"a batch of {layout.rows} samples takes {_amount(layout.nbytes)}, and {why}; a sample is {sample}. Lower "
        "batch_size, or have the transform give smaller samples"
    )


def _amount(nbytes: int) -> str:
    amount = float(nbytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
