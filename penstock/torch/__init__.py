"""The loader with torch tensors: the same engine, the same batches, the same memory.

The only part of penstock that imports torch.
"""

from __future__ import annotations

from penstock.registry import require

require("torch", extra="torch", purpose="for penstock.torch")

from penstock.torch.collate import as_tensors, default_collate, default_convert  # noqa: E402  # torch is there now
from penstock.torch.dataloader import DataLoader  # noqa: E402  # as above

__all__ = ["DataLoader", "as_tensors", "default_collate", "default_convert"]
