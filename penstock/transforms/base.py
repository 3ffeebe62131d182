"""The interface of ops: a step of a pipeline, which draws parameters for many samples and is applied to one.

::

    draw(keys, sizes, stream) ──> params, one row per sample      from the sample's key, not from the worker
    size(params, sizes)       ──> sizes after the op
    image(image, params[i])   ──> image                           the specification, in NumPy or Pillow
    native(image, params[i])  ──> image                           the same, faster; == image within a stated tolerance
    boxes / keypoints / mask  ──> moved as the pixels are         only if the op moves pixels
    draw_by_boxes, place, keep ──> see :mod:`.targets.objects`    only if boxes decide, are clipped, or are removed
    fuse(fusion)              ──> bool                            whether the op becomes a part of the fused prefix
    compose(geometry, params)                                     then: its effect on the plan of a chunk

Images are HWC uint8 RGB unless an op changes that. Coordinates of boxes and keypoints are continuous: pixel (0, 0)
covers [0, 1] x [0, 1] and its centre is (0.5, 0.5). A new op is one file with a subclass of :class:`Op` and one line
in ``penstock/transforms/__init__.py``. Nothing here depends on a particular op or on pipelines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock import _native, bfloat16
from penstock.errors import ArgumentError
from penstock.sample import Array, Sample, SampleKeys

if TYPE_CHECKING:
    from penstock.transforms.program.geometry import Geometry

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
"""Parameters, one row per sample; of an op that draws nothing, rows of length 0."""

Sizes = NDArray[np.int32]
"""(n, 2), int32: width and height of each sample's image."""


def uniforms(keys: SampleKeys, stream: int, count: int) -> NDArray[np.float64]:
    """Compute :func:`penstock.rng.uniforms` by the native core: the same numbers, (n, count) in [0, 1)."""
    numbers: NDArray[np.float64] = _native.uniforms(
        keys.seed, keys.epoch, np.ascontiguousarray(keys.indices, np.int64), stream, count
    )
    return numbers


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """Properties of images between two ops; ``None`` where samples differ."""

    width: int | None = None
    height: int | None = None
    dtype: str | None = None
    layout: str = "HWC"
    channels: int | None = 3

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the array, if all samples have one."""
        if self.width is None or self.height is None or self.channels is None:
            return None
        if self.layout == "HWC":
            return self.height, self.width, self.channels
        return self.channels, self.height, self.width


class _Decoding(Protocol):
    """Settings of :class:`.decoding.decode.Decode`."""

    mode: str
    scale: str
    late_color: bool


@dataclass(slots=True)
class Fusion:
    """The ops that are fused so far, as the native call needs them; :meth:`Op.fuse` reads and extends it.

    ``source`` and ``channels`` are those of the images before the first op: decoded images have uint8 and 3. Integers
    become floats by ``scale`` and ``offset``, floats are normalised by ``mean`` and ``std``.
    """

    source: str = "uint8"
    channels: int = 3
    stored: bool = False
    decode: _Decoding | None = None
    resized: bool = False
    filter: str = "bilinear"
    flipped: bool = False
    beside: tuple[int, int, int] | None = None
    scale: tuple[float, ...] | None = None
    offset: tuple[float, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    dtype: str = "uint8"
    layout: str = "HWC"
    final: bool = False


class Op:
    """A step of a pipeline. Ops have settings, which do not change once a pipeline is compiled, and no other state.

    They can be pickled, and threads share them.
    """

    random: ClassVar[bool] = False
    """Whether :meth:`draw` draws random numbers."""

    reads_boxes: ClassVar[bool] = False
    """Whether what is drawn depends on the sample's boxes: :meth:`draw_by_boxes` is called in place of :meth:`draw`."""

    removes_objects: ClassVar[bool] = False
    """Whether :meth:`keep` chooses among the objects of a sample."""

    takes_pixels: ClassVar[bool] = True
    """Whether the op needs decoded images. False: it also takes encoded bytes or PIL images."""

    leaves_pixels: ClassVar[bool] = False
    """Whether pixels stay as they are: then images may be CHW as well."""

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # the interface
        """Parameters of each sample; a function of (seed, epoch, index, stream) and the size of the image."""
        return np.empty((len(sizes), 0))

    def draw_by_boxes(
        self,
        keys: SampleKeys,
        sizes: Sizes,
        stream: int,
        boxes: Sequence[NDArray[np.float32]],  # noqa: ARG002  # the interface
    ) -> Params:
        """:meth:`draw`, for an op that :attr:`reads_boxes`: each image's, (n, 4), as they are before the op."""
        return self.draw(keys, sizes, stream)

    def size(self, params: Params, sizes: Sizes) -> Sizes:  # noqa: ARG002  # the interface
        """Return the width and height of each image after the op."""
        return sizes

    def spec(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec of the image after the op; None if it is unknown."""
        return spec

    def image(self, image: ImageLike, params: Params) -> ImageLike:
        """Apply to one image: the specification. Returns a new array or a view; does not change its input."""
        raise NotImplementedError(f"{type(self).__name__} must define image")

    def native(self, image: ImageLike, params: Params) -> ImageLike:
        """Apply to one image, as fast as possible; called by pipelines. Equal to :meth:`image` within a tolerance."""
        return self.image(image, params)

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Move boxes, (n, 4) xyxy, as :meth:`image` moves the pixels; ``size``: width and height before the op."""
        return boxes

    def place(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Boxes where :meth:`boxes` moves them, before they are clipped to the image; by default it clips nothing."""
        return self.boxes(boxes, params, size)

    def move_and_place(
        self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return what :meth:`boxes` and :meth:`place` do; an op whose map takes long to compute computes it once."""
        return self.boxes(boxes, params, size), self.place(boxes, params, size)

    def keep(
        self,
        boxes: NDArray[np.float32],
        visible: NDArray[np.float64],  # noqa: ARG002  # the interface
        size: tuple[int, int],  # noqa: ARG002
    ) -> NDArray[np.bool_]:
        """Say which objects stay, by their boxes and the visible share of each, if the op :attr:`removes_objects`."""
        return np.ones(len(boxes), np.bool_)

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Move keypoints, (n, 2) or (n, 3) with visibility, as :meth:`image` moves the pixels."""
        return points

    def reorder(self, points: NDArray[np.float32], params: Params) -> NDArray[np.float32]:  # noqa: ARG002
        """Exchange moved keypoints, in their own shape, whose names change: the left eye becomes the right one."""
        return points

    def mask(self, mask: ImageLike, params: Params) -> ImageLike:  # noqa: ARG002  # the interface
        """Move a mask, HW, as :meth:`image` moves the pixels; values are not interpolated."""
        return mask

    def fuse(self, fusion: Fusion) -> bool:  # noqa: ARG002  # the interface
        """Add this op to the fused prefix and return True, or return False."""
        return False

    def compose(self, geometry: Geometry, params: Params) -> None:
        """Add the op to the plan of a chunk, if :meth:`fuse` returned True. Default: nothing moves."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class Lambda(Op):
    """Any callable as an op.

    Parameters
    ----------
    fn : callable
        Called with the value, returns the new one; inside, ``penstock.rng()`` is the generator of the sample.
    on : {"image", "sample"}
        ``"image"``: called with each image of the sample, as a callable in a pipeline is;
        ``"sample"``: called once with the whole sample, whose structure it keeps.

    Raises
    ------
    ArgumentError
        If ``fn`` is no callable, or ``on`` has another value.
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

    def spec(self, spec: ImageSpec) -> ImageSpec | None:  # noqa: ARG002  # the interface
        """Return None: what a callable returns is unknown."""
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
    """``spec``, if images are HWC.

    Raises ArgumentError if they are CHW, or of bfloat16.
    """
    if spec.layout != "HWC":
        raise ArgumentError(f"{op!r} needs HWC images; put it before ToLayout({spec.layout!r})")
    if spec.dtype == bfloat16.NAME:
        raise ArgumentError(f"{op!r} does not take images of bfloat16; put it before ToLayout")
    return spec
