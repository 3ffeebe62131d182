"""RandAugment and TrivialAugmentWide: a few ops, chosen at random from a list, each with a magnitude.

The lists, their magnitudes and the pixels are torchvision's on PIL images
(``torchvision.transforms.RandAugment``, ``TrivialAugmentWide``); only the random numbers differ. Where a
chosen op moves pixels, boxes, keypoints and masks follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, reduce
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Params, Sizes, uniforms
from penstock.transforms.checks import as_integer, require_pixels
from penstock.transforms.ops.blur import sharpen, sharpen_native
from penstock.transforms.ops.color import apply_steps
from penstock.transforms.ops.warp import MapOp, Matrix, Warp, affine_matrix, rotation_matrix
from penstock.transforms.pixel_arithmetic import Pixels, Steps, adjust
from penstock.transforms.targets.box_geometry import invert_map

__all__ = ["SPACE", "RandAugment", "TrivialAugmentWide"]

SPACE: Final = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
)
"""The ops, in torchvision's order; params refer to them by position."""

_SIGNED: Final = np.array([1 <= place <= 9 for place in range(len(SPACE))])
_TRANSLATE_X, _TRANSLATE_Y = SPACE.index("TranslateX"), SPACE.index("TranslateY")

_MOVING: Final = frozenset(SPACE[1:6])
"""The ops that move pixels."""

_STEPS: Final[Mapping[str, Callable[[float], Steps]]] = {
    "Identity": lambda _: [],
    "Brightness": lambda magnitude: [("brightness", 1.0 + magnitude)],
    "Color": lambda magnitude: [("saturation", 1.0 + magnitude)],
    "Contrast": lambda magnitude: [("contrast", 1.0 + magnitude)],
    "Posterize": lambda magnitude: [("posterize", int(magnitude))],
    "Solarize": lambda magnitude: [("solarize", magnitude)],
    "AutoContrast": lambda _: [("auto_contrast", 0)],
    "Equalize": lambda _: [("equalize", 0)],
}
"""Changes of value, as steps of which the native core applies several in one call."""


class _MoveOp(Warp):
    """One of the moving ops of :data:`SPACE`; params are its magnitude."""

    def __init__(self, name: str, filter: str, fill: int | Sequence[int], mask_fill: int) -> None:  # noqa: A002
        super().__init__(filter, fill, mask_fill)
        self.name = name

    def matrix(self, params: Params, size: tuple[int, int]) -> Matrix | None:
        """Shears keep the top left corner in place, as in AutoAugment's own code."""
        magnitude = float(params[0])
        if self.name == "Rotate":
            return rotation_matrix(magnitude, size)
        middle = (size[0] * 0.5, size[1] * 0.5)
        if self.name == "TranslateX":
            return affine_matrix(middle, 0.0, (int(magnitude), 0), 1.0, (0.0, 0.0))
        if self.name == "TranslateY":
            return affine_matrix(middle, 0.0, (0, int(magnitude)), 1.0, (0.0, 0.0))
        degrees = math.degrees(math.atan(magnitude))
        return affine_matrix((0, 0), 0.0, (0, 0), 1.0, (degrees, 0.0) if self.name == "ShearX" else (0.0, degrees))


class _Augment(MapOp):
    """Base class of both; params: for each chosen op, its position in :data:`SPACE` and its magnitude."""

    random: ClassVar[bool] = True

    def __init__(self, num_magnitude_bins: int, filter: str, fill: int | Sequence[int], mask_fill: int) -> None:  # noqa: A002
        self.num_magnitude_bins = as_integer(num_magnitude_bins, "num_magnitude_bins", 2, 1 << 15)
        move = _MoveOp("Rotate", filter, fill, mask_fill)  # which checks them
        self.filter, self.fill, self.mask_fill = move.filter, move.fill, move.mask_fill

    def image(self, image: Array, params: Params) -> Pixels:
        """Return the chosen ops, one after another; the image itself where they are identities."""
        return self._apply(image, params, apply_steps, sharpen, lambda move: move.image)

    def native(self, image: Array, params: Params) -> Pixels:
        """Apply by the native core; successive changes of value by one call."""
        return self._apply(image, params, adjust, sharpen_native, lambda move: move.native)

    def _apply(
        self,
        image: Array,
        params: Params,
        change: Callable[[Pixels, Steps], Pixels],
        sharpened: Callable[[Pixels, float], Pixels],
        method: Callable[[Warp], Callable[[Array, Params], Pixels]],
    ) -> Pixels:
        pixels = require_pixels(image, self)
        steps: list[tuple[str, float]] = []
        for place, magnitude in params.reshape(-1, 2).tolist():
            name = SPACE[int(place)]
            if name in _STEPS:
                steps += _STEPS[name](magnitude)
                continue
            pixels, steps = change(pixels, steps), []
            if name in _MOVING:
                pixels = method(self.moving_op(name))(pixels, np.array([magnitude]))
            else:
                pixels = sharpened(pixels, 1.0 + magnitude)
        return change(pixels, steps)

    def mask(self, mask: Array, params: Params) -> Array:
        """Move by the chosen ops."""
        for move, magnitude in self._moving_ops(params):
            mask = move.mask(mask, magnitude)
        return mask

    def onward(self, params: Params, size: tuple[int, int]) -> NDArray[np.float64] | None:
        """The map of all chosen ops together; None if none moves pixels."""
        matrices = [move.matrix(magnitude, size) for move, magnitude in self._moving_ops(params)]
        onward = [invert_map(matrix) for matrix in matrices if matrix is not None]
        return reduce(lambda first, then: then @ first, onward) if onward else None

    def _moving_ops(self, params: Params) -> Iterator[tuple[Warp, Params]]:
        """Yield the chosen ops that move pixels, with their params."""
        for place, magnitude in params.reshape(-1, 2).tolist():
            if SPACE[int(place)] in _MOVING:
                yield self.moving_op(SPACE[int(place)]), np.array([magnitude])

    def moving_op(self, name: str) -> Warp:
        """Return the op of :data:`SPACE` that moves pixels by its params, the magnitude."""
        return _MoveOp(name, self.filter, self.fill, self.mask_fill)


class RandAugment(_Augment):
    """``num_ops`` ops, each chosen uniformly, all of one magnitude: ``torchvision.transforms.RandAugment``.

    Parameters
    ----------
    num_ops : int
        Number of ops.
    magnitude : int
        Strength, 0 to ``num_magnitude_bins - 1``.
    num_magnitude_bins : int
        Number of strengths.
    filter : {"nearest", "bilinear"}
        How moving ops sample the image; a mask always by "nearest".
    fill : int or (int, int, int)
        Value, 0 to 255, of pixels from outside the image.
    mask_fill : int
        The same for masks.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Draws two numbers an op: which, and the sign of its magnitude. Works on uint8.

    E. Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space", 2019.
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        filter: str = "nearest",  # noqa: A002  # Pillow's word
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
    ) -> None:
        super().__init__(num_magnitude_bins, filter, fill, mask_fill)
        self.num_ops = as_integer(num_ops, "num_ops", 1, 1 << 10)
        self.magnitude = as_integer(magnitude, "magnitude", 0, self.num_magnitude_bins - 1)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """Return ops and magnitudes of each image: (n, 2 * num_ops)."""
        numbers = uniforms(keys, stream, 2 * self.num_ops)
        places = (numbers[:, 0::2] * len(SPACE)).astype(np.intp)
        across = 150.0 / 331.0 * sizes
        strengths = np.empty((len(sizes), len(SPACE)))
        strengths[:] = _strengths(0.3, 30.0, 0.9, 0.0, 4, self.num_magnitude_bins)[:, self.magnitude]
        strengths[:, _TRANSLATE_X : _TRANSLATE_Y + 1] = _step(0, across, self.num_magnitude_bins, self.magnitude)
        params = np.empty((len(sizes), 2 * self.num_ops))
        params[:, 0::2] = places
        params[:, 1::2] = _sign_randomly(np.take_along_axis(strengths, places, axis=1), places, numbers[:, 1::2])
        return params


class TrivialAugmentWide(_Augment):
    """One op, chosen uniformly, of a random magnitude: ``torchvision.transforms.TrivialAugmentWide``.

    Parameters
    ----------
    num_magnitude_bins : int
        Number of strengths.
    filter : {"nearest", "bilinear"}
        How moving ops sample the image; a mask always by "nearest".
    fill : int or (int, int, int)
        Value, 0 to 255, of pixels from outside the image.
    mask_fill : int
        The same for masks.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Draws three numbers: which op, its magnitude, and the magnitude's sign. Works on uint8.

    S. Müller, F. Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation", ICCV 2021.
    """

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        filter: str = "nearest",  # noqa: A002  # Pillow's word
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
    ) -> None:
        super().__init__(num_magnitude_bins, filter, fill, mask_fill)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Return the op and magnitude of each image: (n, 2)."""
        numbers = uniforms(keys, stream, 3)
        places = (numbers[:, 0] * len(SPACE)).astype(np.intp)
        bins = (numbers[:, 1] * self.num_magnitude_bins).astype(np.intp)
        strengths = _strengths(0.99, 135.0, 0.99, 32.0, 6, self.num_magnitude_bins)
        return np.stack([places, _sign_randomly(strengths[places, bins], places, numbers[:, 2])], axis=1)


@cache
def _strengths(
    shear: float, degrees: float, enhance: float, pixels: float, bits: int, bins: int
) -> NDArray[np.float64]:
    """Magnitudes of each op, (ops, bins), read-only; translations of RandAugment depend on the image instead."""
    strengths = np.zeros((len(SPACE), bins))
    places = np.arange(bins)
    most = {"Shear": shear, "Translate": pixels, "Rotate": degrees}
    most |= dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), enhance)
    for place, name in enumerate(SPACE):
        if (kind := name.rstrip("XY")) in most:
            strengths[place] = _step(0, most[kind], bins, places)
    counted = places.astype(np.float32) / np.float32((bins - 1) / bits)
    strengths[SPACE.index("Posterize")] = 8 - np.rint(counted)
    strengths[SPACE.index("Solarize")] = _step(255.0, 0.0, bins, places)
    strengths.setflags(write=False)
    return strengths


def _step(first: float, last: float | Array, bins: int, place: int | NDArray[np.intp]) -> Array:
    """Elements of ``torch.linspace(first, last, bins)`` in float32, counted from the nearer end.

    Rounded once, as by a fused multiply-add; where torch has none, its last bit may differ.
    """
    start, end = np.float32(first), np.asarray(last, np.float32)
    step = ((end - start) / np.float32(bins - 1)).astype(np.float64)
    exact = np.where(np.less(place, bins // 2), start + step * place, end - step * (bins - 1 - place))
    return exact.astype(np.float32)


def _sign_randomly(strengths: NDArray[np.float64], places: NDArray[np.intp], coins: NDArray[np.float64]) -> Array:
    """Make the magnitudes of ops that have a direction negative with probability 1/2."""
    return np.where(_SIGNED[places] & (coins < 0.5), -strengths, strengths)
