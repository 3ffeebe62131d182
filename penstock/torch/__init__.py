"""The loader with torch tensors: the same engine, the same batches, the same memory.

The only part of penstock that imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.registry import require

require("torch", extra="torch", purpose="for penstock.torch")

from penstock.torch.collate import as_tensors, default_collate, default_convert  # noqa: E402  # torch is there now
from penstock.torch.dataloader import DataLoader  # noqa: E402  # as above

if TYPE_CHECKING:
    from penstock.torch.vision import ImageFolder, compile  # noqa: A004  # torch.compile's word

__all__ = ["DataLoader", "ImageFolder", "as_tensors", "compile", "default_collate", "default_convert"]


def __getattr__(name: str) -> Any:
    if name not in {"ImageFolder", "compile"}:
        raise AttributeError(f"module 'penstock.torch' has no attribute {name!r}")
    from penstock.torch import vision  # torchvision is optional, and slow to import

    return getattr(vision, name)
