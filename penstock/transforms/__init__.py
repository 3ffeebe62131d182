"""From encoded bytes to what a model takes: decoding, and ops with randomness that belongs to the sample.

``from penstock import transforms as T``. A new op is one file with a subclass of :class:`Op`, one import and one
registration line here; the line also enrols it in the conformance suite (``tests/conformance/test_ops.py``).
"""

from typing import Final

from penstock.registry import Registry
from penstock.transforms.base import Lambda, Op
from penstock.transforms.crop import CenterCrop, RandomCrop, RandomResizedCrop
from penstock.transforms.decode import Decode, decode, sizes
from penstock.transforms.flip import HorizontalFlip, VerticalFlip
from penstock.transforms.layout import ToLayout
from penstock.transforms.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalize
from penstock.transforms.pipeline import Pipeline
from penstock.transforms.program import Failure, Plan, Program
from penstock.transforms.resize import Resize

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "CenterCrop",
    "Decode",
    "Failure",
    "HorizontalFlip",
    "Lambda",
    "Normalize",
    "Op",
    "Pipeline",
    "Plan",
    "Program",
    "RandomCrop",
    "RandomResizedCrop",
    "Resize",
    "ToLayout",
    "VerticalFlip",
    "decode",
    "ops",
    "sizes",
]

ops: Final = Registry("op")
ops.register("Decode", "penstock.transforms.decode:Decode")
ops.register("Resize", "penstock.transforms.resize:Resize")
ops.register("CenterCrop", "penstock.transforms.crop:CenterCrop")
ops.register("RandomCrop", "penstock.transforms.crop:RandomCrop")
ops.register("RandomResizedCrop", "penstock.transforms.crop:RandomResizedCrop")
ops.register("HorizontalFlip", "penstock.transforms.flip:HorizontalFlip")
ops.register("VerticalFlip", "penstock.transforms.flip:VerticalFlip")
ops.register("Normalize", "penstock.transforms.normalize:Normalize")
ops.register("ToLayout", "penstock.transforms.layout:ToLayout")
