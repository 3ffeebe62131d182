"""From encoded bytes to what a model takes: decoding, and ops with randomness that belongs to the sample.

``from penstock import transforms as T``. A new op is one file with a subclass of :class:`Op`, an import and its name in
``__all__`` here, which also enrols it in the conformance suite (``tests/conformance/test_ops.py``).

Where to find what:

- how a pipeline becomes one native call: ``pipeline.py``, ``program/``
- what an op computes: its ``image`` in ``ops/``; its kernel: ``native/core/src/pixels/``
- which formats are decoded, and in which modes: ``decoding/``
- how boxes, keypoints and masks follow pixels: ``targets/``
"""

import sys
from typing import Any, Final

from penstock.frameworks import OP_NAMES
from penstock.registry import Registry
from penstock.transforms.base import Lambda, Op
from penstock.transforms.decoding.decode import Decode, decode, sizes
from penstock.transforms.decoding.encode import encode
from penstock.transforms.ops.batch_mixing import CutMix, MixUp
from penstock.transforms.ops.blur import GaussianBlur, Sharpness
from penstock.transforms.ops.color import ColorJitter, Grayscale
from penstock.transforms.ops.crop import CenterCrop, RandomCrop, RandomResizedCrop
from penstock.transforms.ops.distort import RandomPhotometricDistort
from penstock.transforms.ops.erase import RandomErasing
from penstock.transforms.ops.flip import HorizontalFlip, VerticalFlip
from penstock.transforms.ops.hsv import RandomHSV
from penstock.transforms.ops.iou_crop import RandomIoUCrop
from penstock.transforms.ops.layout import ToLayout
from penstock.transforms.ops.lookup import LookupTable
from penstock.transforms.ops.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalize
from penstock.transforms.ops.pad import Letterbox, Pad
from penstock.transforms.ops.randaugment import RandAugment, TrivialAugmentWide
from penstock.transforms.ops.resize import RandomShortestSize, Resize, ScaleJitter
from penstock.transforms.ops.sanitize import ClampBoundingBoxes, SanitizeBoundingBoxes
from penstock.transforms.ops.tone import AutoContrast, Equalize, Invert, Posterize, Solarize
from penstock.transforms.ops.warp import RandomAffine, RandomPerspective, RandomRotation
from penstock.transforms.ops.zoom_out import RandomZoomOut
from penstock.transforms.pipeline import Pipeline
from penstock.transforms.program.program import Failure, Plan, Program
from penstock.wording import list_public_names

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "AutoContrast",
    "CenterCrop",
    "ClampBoundingBoxes",
    "ColorJitter",
    "CutMix",
    "Decode",
    "Equalize",
    "Failure",
    "GaussianBlur",
    "Grayscale",
    "HorizontalFlip",
    "Invert",
    "Lambda",
    "Letterbox",
    "LookupTable",
    "MixUp",
    "Normalize",
    "Op",
    "Pad",
    "Pipeline",
    "Plan",
    "Posterize",
    "Program",
    "RandAugment",
    "RandomAffine",
    "RandomCrop",
    "RandomErasing",
    "RandomHSV",
    "RandomIoUCrop",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomZoomOut",
    "Resize",
    "SanitizeBoundingBoxes",
    "ScaleJitter",
    "Sharpness",
    "Solarize",
    "ToLayout",
    "TrivialAugmentWide",
    "VerticalFlip",
    "decode",
    "encode",
    "ops",
    "sizes",
]

ops: Final = Registry("op", "penstock.ops", "penstock.transforms.base:Op")
for _name in __all__:
    if isinstance(_op := globals().get(_name), type) and issubclass(_op, Op) and _op not in {Lambda, Op}:
        ops.register(_name, f"{__name__}:{_name}")


def __getattr__(name: str) -> Any:
    """Return the op of another distribution; of a name of torchvision's or albumentations', say which one is meant."""
    if not name.startswith("_") and name in ops:
        return ops.get(name)
    own = f"; what {name} does in torchvision or albumentations is T.{OP_NAMES.get(name)} here"
    advice = own if name in OP_NAMES else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{advice}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return list_public_names(globals(), __all__)
