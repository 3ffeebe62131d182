"""Whether the script uses CUDA, asked without changing anything: nothing is imported, and CUDA is not initialised."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["find_cuda"]


def find_cuda(torch: Any = None) -> Any:
    """``torch.cuda``, if the script has initialised it; else None.

    A script that forks its workers after CUDA was initialised would break, so nothing else is asked before.

    Parameters
    ----------
    torch : module, optional
        Takes the place of ``torch``; by default the module that the script has imported.
    """
    torch = sys.modules.get("torch") if torch is None else torch
    cuda = getattr(torch, "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)  # not there while torch is being imported
    return cuda if is_initialized is not None and is_initialized() else None
