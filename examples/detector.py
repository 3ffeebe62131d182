"""A small detector without anchors, in plain torch: network, loss, and the boxes that it finds.

::

    image ──1/2──1/4──1/8──1/16──┐        for each cell of the map at 1/8:
                       └────+────┘ 1/8    heat of each class, and distances to the four sides of the box

The targets are those of Z. Liu et al., "Training-Time-Friendly Network for Real-Time Object Detection", 2019: heat
falls from the centre of a box to its sides, and all cells near the centre learn the sides. Peaks of the heat are
objects, as in X. Zhou et al., "Objects as Points", 2019.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["STRIDE", "Detector", "detection_loss", "find_boxes", "pairwise_iou"]

STRIDE = 8
_SPREAD = 0.54  # the heat's standard deviation is this part of a sixth of the side
_INNER = 0.6  # cells with this much of a box's heat learn its sides


class _Block(nn.Module):
    """Two convolutions beside a connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*_convolve(width, width), nn.Conv2d(width, width, 3, 1, 1, bias=False))
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the layers compute."""
        return F.relu(x + self.norm(self.layers(x)))


def _convolve(before: int, after: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU()]


class Detector(nn.Module):
    """The network.

    Parameters
    ----------
    classes : int
        Number of classes.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.eighth = nn.Sequential(
            *_convolve(3, 16, stride=2),
            *_convolve(16, 32, stride=2),
            *_convolve(32, 64, stride=2),
            _Block(64),
        )
        self.sixteenth = nn.Sequential(*_convolve(64, 128, stride=2), _Block(128), _Block(128))
        self.narrow = nn.Sequential(*_convolve(128, 64, kernel=1))
        self.merged = nn.Sequential(*_convolve(64, 64), _Block(64))
        self.heat = nn.Conv2d(64, classes, 1)
        self.sides = nn.Conv2d(64, 4, 1)
        nn.init.constant_(self.heat.bias, -4.0)  # type: ignore[arg-type]  # there is a bias: heat is rare at first

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Heat before the sigmoid (n, classes, h, w), and distances in pixels (n, 4, h, w), of uint8 (n, 3, 8h, 8w)."""
        fine = self.eighth((images.float() - 127) / 64)
        coarse = F.interpolate(self.narrow(self.sixteenth(fine)), size=fine.shape[2:], mode="nearest")
        merged = self.merged(fine + coarse)
        return self.heat(merged), F.softplus(self.sides(merged)) * 2 * STRIDE


def _centres(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Coordinates in the image of the cells of a map: y (h, 1), x (1, w)."""
    y, x = (torch.arange(count) * STRIDE + STRIDE / 2 for count in (height, width))
    return y[:, None], x[None]


def _targets(rows: Tensor, classes: int, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Heat (classes, h, w), sides (4, h, w) and their weights (h, w) of the objects (n, 5): box and label."""
    heat, sides, weights = (
        torch.zeros(classes, height, width),
        torch.zeros(4, height, width),
        torch.zeros(height, width),
    )
    y, x = _centres(height, width)
    area = (rows[:, 2] - rows[:, 0]) * (rows[:, 3] - rows[:, 1])
    for x0, y0, x1, y1, label in rows[area.argsort(descending=True)].tolist():  # small objects lie above large ones
        # The cell that has the centre is the middle of the heat, which is then 1 there.
        row, column = int((y0 + y1) / 2 / STRIDE), int((x0 + x1) / 2 / STRIDE)
        row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
        far_y, far_x = ((max(side, STRIDE) * _SPREAD / 6) for side in (y1 - y0, x1 - x0))
        own = torch.exp(-((y - y[row]) ** 2) / (2 * far_y**2) - (x - x[0, column]) ** 2 / (2 * far_x**2))
        heat[int(label)] = torch.maximum(heat[int(label)], own)
        inner = own >= _INNER
        sides[:, inner] = torch.stack([p.expand_as(own) for p in (x - x0, y - y0, x1 - x, y1 - y)])[:, inner]
        weights[inner] = own[inner] / own[inner].sum()
    return heat, sides.clamp(min=0), weights


def detection_loss(heat: Tensor, sides: Tensor, rows: Sequence[Tensor]) -> Tensor:
    """The loss of a batch.

    Parameters
    ----------
    heat, sides : Tensor
        What :class:`Detector` returns.
    rows : sequence of Tensor
        For each image, float32 (n, 5): box and label.
    """
    made = [_targets(each, heat.shape[1], *heat.shape[2:]) for each in rows]
    expected, target, weights = (torch.stack(parts) for parts in zip(*made, strict=True))
    objects = max(1, sum(map(len, rows)))
    chance, peak = heat.sigmoid().clamp(1e-4, 1 - 1e-4), expected > 0.999
    found = (1 - chance) ** 2 * chance.log() * peak
    other = (1 - expected) ** 4 * chance**2 * (1 - chance).log() * ~peak
    return -(found + other).sum() / objects + 5 * (weights * _giou_loss(sides, target)).sum() / objects


def _giou_loss(sides: Tensor, target: Tensor) -> Tensor:
    """1 - GIoU of boxes around the same point, (n, h, w)."""
    areas = [(each[:, 0] + each[:, 2]) * (each[:, 1] + each[:, 3]) for each in (sides, target)]
    least, most = torch.minimum(sides, target), torch.maximum(sides, target)
    shared = (least[:, 0] + least[:, 2]) * (least[:, 1] + least[:, 3])
    hull = (most[:, 0] + most[:, 2]) * (most[:, 1] + most[:, 3])
    union = areas[0] + areas[1] - shared
    return 1 - shared / (union + 1e-6) + (hull - union) / (hull + 1e-6)


def pairwise_iou(one: Tensor, other: Tensor) -> Tensor:
    """Intersection over union of boxes (n, 4) and (m, 4): (n, m)."""
    low, high = torch.maximum(one[:, None, :2], other[None, :, :2]), torch.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    areas = [(each[:, 2:] - each[:, :2]).prod(1) for each in (one, other)]
    return shared / (areas[0][:, None] + areas[1][None] - shared).clamp(min=1e-9)


def find_boxes(heat: Tensor, sides: Tensor, most: int = 100, overlap: float = 0.5) -> list[Tensor]:
    """The objects of each image.

    Parameters
    ----------
    heat, sides : Tensor
        What :class:`Detector` returns.
    most : int
        Greatest number of objects in an image.
    overlap : float
        Of two boxes of a class with a larger IoU, the one with less heat is left out.

    Returns
    -------
    list of Tensor
        For each image float32 (n, 6): box, label and score, in descending order of scores.
    """
    height, width = heat.shape[2:]
    y, x = _centres(height, width)
    limit = torch.tensor([width, height, width, height]) * STRIDE
    chance = heat.sigmoid()
    chance = chance * (F.max_pool2d(chance, 3, 1, 1) == chance)  # peaks
    found = []
    for one, side in zip(chance, sides, strict=True):
        scores, places = one.flatten().topk(min(2 * most, one.numel()))
        labels, cells = places // (height * width), places % (height * width)
        corners = torch.stack([x - side[0], y - side[1], x + side[2], y + side[3]]).flatten(1).T[cells]
        boxes = torch.minimum(corners.clamp(min=0), limit)
        close = (pairwise_iou(boxes, boxes) > overlap) & (labels[:, None] == labels[None])
        kept: list[int] = []
        for index in range(len(scores)):
            if scores[index] > 0.01 and not close[index, kept].any():
                kept.append(index)
        rows = torch.cat([boxes, labels[:, None], scores[:, None]], 1)
        found.append(rows[kept[:most]])
    return found
