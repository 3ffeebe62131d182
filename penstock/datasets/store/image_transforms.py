"""Converts the transform of a dataset of a store to a pipeline, or to a transform of images or of samples.

===============================  ====================================================================
a Pipeline, an op, a list of ops  a pipeline: kinds by the schema, rows filled where images have one shape
a transform of torchvision's      called with each image, decoded; compiled as far as it is recognised
one of v2, beside boxes, masks    called with the whole sample as ``tv_tensors``; compiled if all of it is recognised
one of albumentations             compiled if recognised, else called with the decoded fields by name
any other callable                called with the whole sample, images still encoded
===============================  ====================================================================

A library whose transforms are called with the image alone has one line in :data:`IMAGE_TRANSFORMS`, one whose
transforms are called with decoded samples one in :data:`SAMPLE_TRANSFORMS`. Its converter is imported when such a
transform is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from penstock import frameworks
from penstock.errors import ArgumentError
from penstock.registry import Registry
from penstock.sample import Index, Sample, Value

if TYPE_CHECKING:
    from penstock.datasets.store.selection import FieldSelection
    from penstock.sample import Array, ArraySpec
    from penstock.transforms.pipeline import Pipeline
    from penstock.transforms.program.program import Program

__all__ = [
    "IMAGE_TRANSFORMS",
    "SAMPLE_TRANSFORMS",
    "ImageTransform",
    "SampleTransform",
    "as_image_transform",
    "as_pipeline",
    "as_sample_transform",
]

IMAGE_TRANSFORMS: Final = Registry("library of image transforms")
for _name, _converter in frameworks.IMAGE_TRANSFORMS.items():
    IMAGE_TRANSFORMS.register(_name, _converter)

SAMPLE_TRANSFORMS: Final = Registry("library of sample transforms")
for _name, _converter in frameworks.SAMPLE_TRANSFORMS.items():
    SAMPLE_TRANSFORMS.register(_name, _converter)


class ImageTransform(Protocol):
    """A transform of another library, called with the images of a store.

    ``program`` fills rows, if ``spec`` is not None; ``what`` says which part of it is native. Called with an encoded
    image, or with the pixels of one, it returns what the library returns for the decoded image.
    """

    program: Program | None
    spec: ArraySpec | None
    what: str

    def __call__(self, encoded: bytes | Array) -> Sample:
        """Transform one image, with the random numbers of the current sample."""
        ...


class SampleTransform(Protocol):
    """A transform of another library, called with the samples of a store: the image and what follows it.

    ``pipeline`` does the same natively, if all parts are recognised. ``layout`` is the order of the axes of its images,
    if it is known; ``what`` says what is native.
    """

    pipeline: Pipeline | None
    layout: str | None
    what: str

    def __call__(self, values: Mapping[Index, Value]) -> Sample:
        """The sample from the values of a record by name: images encoded or pixels, everything else arrays."""
        ...


def as_pipeline(transform: object) -> Pipeline | None:
    """Return the pipeline that ``transform`` is, or that its ops make; None for another callable, and for None."""
    if transform is None:
        return None
    from penstock.transforms import Op, Pipeline  # imports the native core, which stores without transforms do not need

    if isinstance(transform, type) and issubclass(transform, Op):
        raise ArgumentError(
            f"transform must be an op, got the class {transform.__name__}; write T.{transform.__name__}()"
        )
    if isinstance(transform, Pipeline):
        return transform
    if isinstance(transform, Op):
        return Pipeline([transform])
    if isinstance(transform, list | tuple):
        return Pipeline(transform)
    if not callable(transform):
        raise ArgumentError(f"transform must be a Pipeline, a list of ops or a callable, got {transform!r:.80}")
    return None


def as_image_transform(transform: object) -> ImageTransform | None:
    """Convert ``transform`` by the converter of its library; None if its library has no converter."""
    converted: ImageTransform | None = _convert(IMAGE_TRANSFORMS, transform)
    return converted


def as_sample_transform(transform: object, selection: FieldSelection) -> SampleTransform | None:
    """``transform`` for samples of these fields; None if it takes images alone, or its library has no converter."""
    converted: SampleTransform | None = _convert(SAMPLE_TRANSFORMS, transform, selection)
    return converted


def _convert(converters: Registry, transform: object, *more: object) -> Value:
    library = _library(transform)
    return converters.get(library)(transform, *more) if library in converters else None


def _library(transform: object) -> str:
    """Return the package of its class; for a framework's container (``nn.Sequential``), that of its first child."""
    library = type(transform).__module__.partition(".")[0]
    if (
        library in frameworks.FRAMEWORKS
        and (inner := next(iter(getattr(transform, "children", tuple)()), None)) is not None
    ):
        return _library(inner)
    return library
