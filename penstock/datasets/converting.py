"""What a dataset of a store does with the transform that it is given.

===============================  ====================================================================
a Pipeline, an op, a list of ops  a pipeline: kinds by the schema, rows filled where images have one shape
a transform of torchvision's      called with each image, decoded; compiled as far as it is recognised
any other callable                called with the whole sample, as shaped, images still encoded
===============================  ====================================================================

A library whose transforms are called with the image alone has one line in :data:`IMAGE_TRANSFORMS`; its converter is
imported when such a transform is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.errors import ArgumentError
from penstock.registry import Registry

if TYPE_CHECKING:
    from penstock.sample import ArraySpec
    from penstock.transforms.pipeline import Pipeline
    from penstock.transforms.program import Program

__all__ = ["IMAGE_TRANSFORMS", "ImageTransform", "as_image_transform", "as_pipeline"]

IMAGE_TRANSFORMS: Final = Registry("library of image transforms")
IMAGE_TRANSFORMS.register("torchvision", "penstock.torch.vision.images:TorchvisionImages")


class ImageTransform(Protocol):
    """A transform of another library, as a store's images go through it.

    ``program`` fills rows, if ``spec`` is not None; ``what`` says what of it is native. Calling it with an encoded
    image gives what the library would.
    """

    program: Program | None
    spec: ArraySpec | None
    what: str

    def __call__(self, encoded: bytes) -> Any:
        """One image, under the current sample's key."""
        ...


def as_pipeline(transform: Any) -> Pipeline | None:
    """The pipeline that ``transform`` is, or stands for; None for any other callable, and for None."""
    if transform is None:
        return None
    from penstock.transforms import Op, Pipeline  # with it comes the native core; plain stores need none

    if isinstance(transform, type) and issubclass(transform, Op):
        raise ArgumentError(f"{transform.__name__} is a class; write T.{transform.__name__}()")
    if isinstance(transform, Pipeline):
        return transform
    if isinstance(transform, Op):
        return Pipeline([transform])
    if isinstance(transform, list | tuple):
        return Pipeline(transform)
    if not callable(transform):
        raise ArgumentError(f"transform must be a Pipeline, a list of ops or a callable, got {transform!r:.80}")
    return None


def as_image_transform(transform: Any) -> ImageTransform | None:
    """``transform`` as its library's converter has it; None if it belongs to no library that is known here."""
    library = _library(transform)
    if library not in IMAGE_TRANSFORMS:
        return None
    converted: ImageTransform = IMAGE_TRANSFORMS.get(library)(transform)
    return converted


def _library(transform: Any) -> str:
    """The package of its class; of what it holds first, for torch's own ``nn.Sequential``."""
    library = type(transform).__module__.partition(".")[0]
    if library == "torch" and (inner := next(iter(getattr(transform, "children", tuple)()), None)) is not None:
        return _library(inner)
    return library
