"""torchvision's datasets and transforms on penstock's native pipeline: ``ImageFolder`` and ``compile``.

Imported on first use of one of them, because torchvision is an optional package.
"""

from __future__ import annotations

from penstock.registry import require

require("torchvision", purpose="for penstock.torch.ImageFolder and penstock.torch.compile")

from penstock.torch.vision.compiling import compile  # noqa: A004, E402  # torch.compile's name; after the check above
from penstock.torch.vision.folders import ImageFolder, UnreadableImageError  # noqa: E402  # as above

__all__ = ["ImageFolder", "UnreadableImageError", "compile"]
