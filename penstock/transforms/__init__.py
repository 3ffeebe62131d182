"""From encoded bytes to what a model takes: decoding, and ops with randomness that belongs to the sample.

``from penstock import transforms as T``. A new op is one file with a subclass of :class:`Op`, one import and one
registration line here; the line also enrols it in the conformance suite (``tests/conformance/test_ops.py``).
"""

from typing import Final

from penstock.registry import Registry
from penstock.transforms.base import Lambda, Op
from penstock.transforms.decoding.decode import Decode, decode, sizes
from penstock.transforms.decoding.encode import encode
from penstock.transforms.ops.batch import CutMix, MixUp
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

ops: Final = Registry("op")
ops.register("Decode", "penstock.transforms.decoding.decode:Decode")
ops.register("Resize", "penstock.transforms.ops.resize:Resize")
ops.register("CenterCrop", "penstock.transforms.ops.crop:CenterCrop")
ops.register("RandomCrop", "penstock.transforms.ops.crop:RandomCrop")
ops.register("RandomResizedCrop", "penstock.transforms.ops.crop:RandomResizedCrop")
ops.register("HorizontalFlip", "penstock.transforms.ops.flip:HorizontalFlip")
ops.register("VerticalFlip", "penstock.transforms.ops.flip:VerticalFlip")
ops.register("Normalize", "penstock.transforms.ops.normalize:Normalize")
ops.register("ToLayout", "penstock.transforms.ops.layout:ToLayout")
ops.register("ColorJitter", "penstock.transforms.ops.color:ColorJitter")
ops.register("RandomHSV", "penstock.transforms.ops.hsv:RandomHSV")
ops.register("Grayscale", "penstock.transforms.ops.color:Grayscale")
ops.register("Posterize", "penstock.transforms.ops.tone:Posterize")
ops.register("Solarize", "penstock.transforms.ops.tone:Solarize")
ops.register("Equalize", "penstock.transforms.ops.tone:Equalize")
ops.register("AutoContrast", "penstock.transforms.ops.tone:AutoContrast")
ops.register("Invert", "penstock.transforms.ops.tone:Invert")
ops.register("LookupTable", "penstock.transforms.ops.lookup:LookupTable")
ops.register("GaussianBlur", "penstock.transforms.ops.blur:GaussianBlur")
ops.register("Sharpness", "penstock.transforms.ops.blur:Sharpness")
ops.register("RandomRotation", "penstock.transforms.ops.warp:RandomRotation")
ops.register("RandomAffine", "penstock.transforms.ops.warp:RandomAffine")
ops.register("RandomPerspective", "penstock.transforms.ops.warp:RandomPerspective")
ops.register("RandomErasing", "penstock.transforms.ops.erase:RandomErasing")
ops.register("Pad", "penstock.transforms.ops.pad:Pad")
ops.register("Letterbox", "penstock.transforms.ops.pad:Letterbox")
ops.register("RandAugment", "penstock.transforms.ops.randaugment:RandAugment")
ops.register("TrivialAugmentWide", "penstock.transforms.ops.randaugment:TrivialAugmentWide")
ops.register("RandomShortestSize", "penstock.transforms.ops.resize:RandomShortestSize")
ops.register("ScaleJitter", "penstock.transforms.ops.resize:ScaleJitter")
ops.register("RandomPhotometricDistort", "penstock.transforms.ops.distort:RandomPhotometricDistort")
ops.register("RandomIoUCrop", "penstock.transforms.ops.iou_crop:RandomIoUCrop")
ops.register("RandomZoomOut", "penstock.transforms.ops.zoom_out:RandomZoomOut")
ops.register("ClampBoundingBoxes", "penstock.transforms.ops.sanitize:ClampBoundingBoxes")
ops.register("SanitizeBoundingBoxes", "penstock.transforms.ops.sanitize:SanitizeBoundingBoxes")


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
