"""What an op is: a step of a pipeline that draws its parameters for many samples and applies them to one.

::

    draw(keys, sizes, stream) ──> params, one row per sample      keyed by the sample, never by the worker
    size(params, sizes)       ──> sizes after the op
    image(image, params[i])   ──> image                           the specification, in NumPy or Pillow
    native(image, params[i])  ──> image                           the same, faster; == image within a stated tolerance
    boxes / keypoints / mask  ──> moved as the pixels are         only where the op moves pixels
    fuse(fusion)              ──> bool                            may the compiler take the op into the fused prefix?
    compose(geometry, params)                                     what it then does to the plan of a chunk

Images are HWC uint8 RGB until an op says otherwise. Coordinates of boxes and keypoints are continuous: pixel (0, 0)
covers [0, 1] x [0, 1] and its centre is (0.5, 0.5). A new op is one file with a subclass of :class:`Op` and one line
in ``penstock/transforms/__init__.py``. This module knows no op and no pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import ArgumentError
from penstock.sample import Array, Sample, SampleKeys

if TYPE_CHECKING:
    from penstock.transforms.decode import Decode
    from penstock.transforms.geometry import Geometry

__all__ = [
    "Fusion",
    "ImageLike",
    "ImageSpec",
    "Lambda",
    "Op",
    "Params",
    "Sizes",
    "as_height_width",
    "require_hwc",
    "uniforms",
]

ImageLike = Any
"""An image as ops are given it: an HWC or HW array; before the first op on pixels also encoded bytes or a PIL image."""

Params = Array
"""Numbers of each sample along the first axis; an op that draws nothing has rows of length 0."""

Sizes = NDArray[np.int32]
"""(n, 2), int32: width and height of each sample's image."""


def uniforms(keys: SampleKeys, stream: int, count: int) -> NDArray[np.float64]:
    """:func:`penstock.rng.uniforms`, computed by the native core: the same numbers, (n, count) in [0, 1)."""
    numbers: NDArray[np.float64] = _native.uniforms(
        keys.seed, keys.epoch, np.ascontiguousarray(keys.indices, np.int64), stream, count
    )
    return numbers


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """What is known of an image between two ops; ``None`` where it differs from sample to sample."""

    width: int | None = None
    height: int | None = None
    dtype: str | None = None
    layout: str = "HWC"

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The array's shape, if it is fixed; images have three channels."""
        if self.width is None or self.height is None:
            return None
        return (self.height, self.width, 3) if self.layout == "HWC" else (3, self.height, self.width)


@dataclass(slots=True)
class Fusion:
    """What the compiler knows of the prefix it has fused so far; an op's :meth:`Op.fuse` reads and extends it."""

    decode: Decode | None = None
    resized: bool = False
    filter: str = "bilinear"
    flipped: bool = False
    beside: tuple[int, int, int] | None = None
    scale: tuple[float, ...] | None = None
    offset: tuple[float, ...] | None = None
    dtype: str = "uint8"
    layout: str = "HWC"
    final: bool = False


class Op:
    """A step of a pipeline. Ops hold their settings alone, pickle, and are shared by threads."""

    random: ClassVar[bool] = False
    """Whether :meth:`draw` draws."""

    takes_pixels: ClassVar[bool] = True
    """Whether the op works on decoded images. False: it is given whatever stands there (encoded bytes, a PIL image)."""

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # the interface
        """Parameters of each sample, from (seed, epoch, index, stream) and its image's size alone."""
        return np.empty((len(sizes), 0))

    def size(self, params: Params, sizes: Sizes) -> Sizes:  # noqa: ARG002  # the interface
        """Width and height of each image after the op."""
        return sizes

    def spec(self, spec: ImageSpec) -> ImageSpec | None:
        """What is known of the image after the op; None: nothing."""
        return spec

    def image(self, image: ImageLike, params: Params) -> ImageLike:
        """Apply to one image: the specification. A new array or a view; never changes its input."""
        raise NotImplementedError(f"{type(self).__name__} must define image")

    def native(self, image: ImageLike, params: Params) -> ImageLike:
        """Apply to one image as fast as we can; what pipelines call."""
        return self.image(image, params)

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Move boxes, (n, 4) xyxy, as :meth:`image` moves the pixels; ``size``: width and height before the op."""
        return boxes

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Move keypoints, (n, 2) or (n, 3) with visibility, as :meth:`image` moves the pixels."""
        return points

    def mask(self, mask: ImageLike, params: Params) -> ImageLike:  # noqa: ARG002  # the interface
        """Move a mask, HW, as :meth:`image` moves the pixels; values are never mixed."""
        return mask

    def fuse(self, fusion: Fusion) -> bool:  # noqa: ARG002  # the interface
        """Extend the fused prefix by this op and say True, or leave it as it is and say False."""
        return False

    def compose(self, geometry: Geometry, params: Params) -> None:
        """Put the op's parameters into a chunk's plan, where :meth:`fuse` said True. Default: nothing moves."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class Lambda(Op):
    """Any callable as an op.

    Parameters
    ----------
    fn : callable
        Called with the value and returning the new one; ``penstock.rng()`` gives it the sample's own generator.
    on : {"image", "sample"}
        ``"image"``: called with each image of the sample (what a bare callable in a pipeline means);
        ``"sample"``: called once with the whole sample, whose structure it keeps.
    """

    takes_pixels: ClassVar[bool] = False

    def __init__(self, fn: Callable[[Sample], Sample], on: str = "image") -> None:
        given: object = fn
        if isinstance(given, type) and issubclass(given, Op):
            raise ArgumentError(f"fn must be an instance, got the class {given.__name__}; write T.{given.__name__}()")
        if not callable(fn):
            raise ArgumentError(f"fn must be an Op or a callable, got {fn!r:.200}")
        if on not in {"image", "sample"}:
            raise ArgumentError(f"on must be 'image' or 'sample', got {on!r}")
        self.fn = fn
        self.on = on

    def spec(self, spec: ImageSpec) -> ImageSpec | None:  # noqa: ARG002  # nobody knows
        """Nothing is known of what a callable returns."""
        return None

    def image(self, image: ImageLike, params: Params) -> ImageLike:  # noqa: ARG002  # a callable draws for itself
        """Call the function."""
        return self.fn(image)


def as_height_width(size: int | tuple[int, int], what: str) -> tuple[int, int]:
    """``(height, width)`` of a size given as torchvision takes it: one int for a square, or (height, width)."""
    values: tuple[object, ...] = tuple(size) if isinstance(size, Iterable) else (size, size)
    sides = [int(side) for side in values if isinstance(side, int | np.integer) and 0 < side <= 1 << 16]
    if len(values) != 2 or len(sides) != 2:
        raise ArgumentError(f"{what}: size must be an int or (height, width), each in [1, 65536], got {size!r:.80}")
    return sides[0], sides[1]


def require_hwc(spec: ImageSpec, op: Op) -> ImageSpec:
    """``spec``, checked to be one whose rows and columns an op can move."""
    if spec.layout != "HWC":
        raise ArgumentError(f"{op!r} needs HWC images; put it before ToLayout({spec.layout!r})")
    return spec
