"""From encoded bytes to what a model takes: decoding, and ops with randomness that belongs to the sample.

``from penstock import transforms as T``. A new op is one file with a subclass of :class:`Op`, one import and one
registration line here; the line also enrols it in the conformance suite (``tests/conformance/test_ops.py``).
"""

from typing import Final

from penstock.registry import Registry
from penstock.transforms.base import Lambda, Op
from penstock.transforms.batch import CutMix, MixUp
from penstock.transforms.blur import GaussianBlur, Sharpness
from penstock.transforms.color import ColorJitter, Grayscale
from penstock.transforms.crop import CenterCrop, RandomCrop, RandomResizedCrop
from penstock.transforms.decode import Decode, decode, sizes
from penstock.transforms.distort import RandomPhotometricDistort
from penstock.transforms.encode import encode
from penstock.transforms.erase import RandomErasing
from penstock.transforms.flip import HorizontalFlip, VerticalFlip
from penstock.transforms.hsv import RandomHSV
from penstock.transforms.iou_crop import RandomIoUCrop
from penstock.transforms.layout import ToLayout
from penstock.transforms.lookup import LookupTable
from penstock.transforms.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalize
from penstock.transforms.pad import Letterbox, Pad
from penstock.transforms.pipeline import Pipeline
from penstock.transforms.program import Failure, Plan, Program
from penstock.transforms.randaugment import RandAugment, TrivialAugmentWide
from penstock.transforms.resize import RandomShortestSize, Resize, ScaleJitter
from penstock.transforms.sanitize import ClampBoundingBoxes, SanitizeBoundingBoxes
from penstock.transforms.tone import AutoContrast, Equalize, Invert, Posterize, Solarize
from penstock.transforms.warp import RandomAffine, RandomPerspective, RandomRotation
from penstock.transforms.zoom_out import RandomZoomOut

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
ops.register("Decode", "penstock.transforms.decode:Decode")
ops.register("Resize", "penstock.transforms.resize:Resize")
ops.register("CenterCrop", "penstock.transforms.crop:CenterCrop")
ops.register("RandomCrop", "penstock.transforms.crop:RandomCrop")
ops.register("RandomResizedCrop", "penstock.transforms.crop:RandomResizedCrop")
ops.register("HorizontalFlip", "penstock.transforms.flip:HorizontalFlip")
ops.register("VerticalFlip", "penstock.transforms.flip:VerticalFlip")
ops.register("Normalize", "penstock.transforms.normalize:Normalize")
ops.register("ToLayout", "penstock.transforms.layout:ToLayout")
ops.register("ColorJitter", "penstock.transforms.color:ColorJitter")
ops.register("RandomHSV", "penstock.transforms.hsv:RandomHSV")
ops.register("Grayscale", "penstock.transforms.color:Grayscale")
ops.register("Posterize", "penstock.transforms.tone:Posterize")
ops.register("Solarize", "penstock.transforms.tone:Solarize")
ops.register("Equalize", "penstock.transforms.tone:Equalize")
ops.register("AutoContrast", "penstock.transforms.tone:AutoContrast")
ops.register("Invert", "penstock.transforms.tone:Invert")
ops.register("LookupTable", "penstock.transforms.lookup:LookupTable")
ops.register("GaussianBlur", "penstock.transforms.blur:GaussianBlur")
ops.register("Sharpness", "penstock.transforms.blur:Sharpness")
ops.register("RandomRotation", "penstock.transforms.warp:RandomRotation")
ops.register("RandomAffine", "penstock.transforms.warp:RandomAffine")
ops.register("RandomPerspective", "penstock.transforms.warp:RandomPerspective")
ops.register("RandomErasing", "penstock.transforms.erase:RandomErasing")
ops.register("Pad", "penstock.transforms.pad:Pad")
ops.register("Letterbox", "penstock.transforms.pad:Letterbox")
ops.register("RandAugment", "penstock.transforms.randaugment:RandAugment")
ops.register("TrivialAugmentWide", "penstock.transforms.randaugment:TrivialAugmentWide")
ops.register("RandomShortestSize", "penstock.transforms.resize:RandomShortestSize")
ops.register("ScaleJitter", "penstock.transforms.resize:ScaleJitter")
ops.register("RandomPhotometricDistort", "penstock.transforms.distort:RandomPhotometricDistort")
ops.register("RandomIoUCrop", "penstock.transforms.iou_crop:RandomIoUCrop")
ops.register("RandomZoomOut", "penstock.transforms.zoom_out:RandomZoomOut")
ops.register("ClampBoundingBoxes", "penstock.transforms.sanitize:ClampBoundingBoxes")
ops.register("SanitizeBoundingBoxes", "penstock.transforms.sanitize:SanitizeBoundingBoxes")
