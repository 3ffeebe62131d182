"""A small network with an output for each second pixel: down to a sixteenth, and up again beside what was there."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["STRIDE", "PixelNetwork"]

STRIDE = 2
_WIDTHS = (24, 48, 96, 128)


def _convolve(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]


class PixelNetwork(nn.Module):
    """The network; it has the form of O. Ronneberger et al., "U-Net", 2015.

    Parameters
    ----------
    outputs : int
        Number of maps.
    """

    def __init__(self, outputs: int) -> None:
        super().__init__()
        before = (3, *_WIDTHS)
        self.down = nn.ModuleList(
            nn.Sequential(*_convolve(one, other, stride=2), *_convolve(other, other)) for one, other in pairwise(before)
        )
        self.deep = nn.Sequential(*_convolve(_WIDTHS[-1], _WIDTHS[-1]))
        self.narrow = nn.ModuleList(nn.Conv2d(other, one, 1) for one, other in pairwise(_WIDTHS))
        self.up = nn.ModuleList(nn.Sequential(*_convolve(one, one)) for one in _WIDTHS[:-1])
        self.last = nn.Conv2d(_WIDTHS[0], outputs, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Maps (n, outputs, h, w) of images uint8 (n, 3, 2h, 2w); h and w are multiples of 8."""
        held = []
        found = (images.float() - 127) / 64
        for layer in self.down:
            found = layer(found)
            held.append(found)
        found = self.deep(found)
        for level in reversed(range(len(self.up))):
            wide = F.interpolate(self.narrow[level](found), scale_factor=2, mode="nearest")
            found = self.up[level](held[level] + wide)
        return torch.as_tensor(self.last(found))
