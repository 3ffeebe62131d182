"""T1 in torch: simplejpeg, the fastest decoder of ``rivals.py`` there, then torchvision's v2 transforms."""

import simplejpeg
import torch
from serve import DEVIATION, MEAN
from torchvision.transforms import v2

TRAIN = v2.Compose(
    [
        v2.RandomResizedCrop(224, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, DEVIATION),
    ]
)


def simple(content):
    return torch.from_numpy(simplejpeg.decode_jpeg(content)).permute(2, 0, 1)


def train(content):
    """The input of a training step from the bytes of a JPEG."""
    return TRAIN(simple(content))
