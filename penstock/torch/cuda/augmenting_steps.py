"""Steps of images, as the kernels read them (``struct Step`` of ``kernels/augment.h``), from the params of each op.

Called by :mod:`penstock.torch.cuda.augmenting`. One entry of :data:`_WRITERS` for each op that runs on a device; an op
that has none, such as a subclass of one that has, is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array, DType
from penstock.transforms.base import Params
from penstock.transforms.checks import colour_as_dtype
from penstock.transforms.ops.blur import GaussianBlur, Sharpness, group_gaussians
from penstock.transforms.ops.color import ColorJitter, Grayscale
from penstock.transforms.ops.distort import CHANNEL_ORDERS, RandomPhotometricDistort
from penstock.transforms.ops.erase import RandomErasing
from penstock.transforms.ops.hsv import RandomHSV
from penstock.transforms.ops.lookup import LookupTable
from penstock.transforms.ops.randaugment import SPACE, RandAugment, TrivialAugmentWide
from penstock.transforms.ops.tone import AutoContrast, Equalize, Invert, Posterize, Solarize
from penstock.transforms.ops.warp import Matrix, RandomAffine, RandomPerspective, RandomRotation, Warp

__all__ = [
    "KEEP",
    "MEASURED",
    "MOVING",
    "NOTHING",
    "StepWriter",
    "Steps",
    "erase_steps",
    "explain_refusal",
    "write_steps",
]

Steps = NDArray[np.void]
"""Structured arrays of :data:`STEP`."""

STEP: Final = np.dtype(
    [
        ("kind", np.int32),
        ("image", np.int32),
        ("source", np.int32),
        ("target", np.int32),
        ("integers", np.int32, 4),
        ("numbers", np.float64, 8),
    ]
)

_KINDS: Final = [
    "nothing",
    "keep",
    "brightness",
    "saturation",
    "hue",
    "shift_hsv",
    "gray",
    "posterize",
    "solarize",
    "invert",
    "lookup",
    "permute",
    "erase",
    "contrast",
    "auto_contrast",
    "equalize",
    "blur",
    "sharpen",
    "warp",
]
"""``enum StepKind``, in order."""

_NUMBERS: Final = {name: number for number, name in enumerate(_KINDS)}

NOTHING: Final = _NUMBERS["nothing"]
KEEP: Final = _NUMBERS["keep"]

MEASURED: Final = tuple(_NUMBERS[name] for name in ("contrast", "auto_contrast", "equalize"))
"""Steps that need statistics of the whole image: the kernel ``measure`` runs before them."""

MOVING: Final = tuple(_NUMBERS[name] for name in ("blur", "sharpen", "warp"))
"""Steps that read other pixels; each has a kernel of its name."""

_FACTORS: Final = tuple(_NUMBERS[name] for name in ("brightness", "contrast", "saturation", "sharpen"))
"""Steps whose number is a factor in single precision."""

_IN_SPACE: Final[Mapping[str, str]] = {
    "Identity": "nothing",
    "Brightness": "brightness",
    "Color": "saturation",
    "Contrast": "contrast",
    "Sharpness": "sharpen",
    "Posterize": "posterize",
    "Solarize": "solarize",
    "AutoContrast": "auto_contrast",
    "Equalize": "equalize",
}
"""The steps of the ops of :data:`~penstock.transforms.ops.randaugment.SPACE`; the others are warps."""

_BILINEAR, _PROJECTIVE = 1, 2
"""``enum WarpOptions``."""


class StepWriter:
    """Collects columns of steps: in each, one step of each image.

    Parameters
    ----------
    count : int
        Images of the batch.
    size : (int, int)
        Their width and height.
    """

    def __init__(self, count: int, size: tuple[int, int]) -> None:
        self.count, self.size = count, size
        self.columns: list[Steps] = []
        self.tables: list[Array] = []
        self.weights: list[NDArray[np.float32]] = []
        self._weights = 0

    def make_column(self) -> Steps:
        """Steps that do nothing, one for each image."""
        steps = np.zeros(self.count, STEP)
        steps["image"] = np.arange(self.count)
        return steps

    def add(self, kinds: int | Array, values: float | Array = 0.0) -> Steps:
        """Add a column of these kinds; ``values`` are factors, turns, bits or thresholds, as in the native core."""
        steps = self.make_column()
        steps["kind"] = kinds
        numbers = np.broadcast_to(np.asarray(values, np.float64), self.count)
        limits = np.finfo(np.float32)
        factors = np.clip(numbers, limits.min, limits.max).astype(np.float32)
        steps["numbers"][:, 0] = np.where(np.isin(steps["kind"], _FACTORS), factors, numbers)
        is_hue, is_posterize = steps["kind"] == _NUMBERS["hue"], steps["kind"] == _NUMBERS["posterize"]
        steps["integers"][is_hue, 0] = (numbers[is_hue] * 255).astype(np.int64) % 256
        steps["integers"][is_posterize, 0] = 256 - (1 << (8 - numbers[is_posterize].astype(np.int64)))
        self.columns.append(steps)
        return steps

    def add_gaussians(self, length: int, sigmas: Array) -> NDArray[np.int32]:
        """Add the weights of each sigma; returns, for each, the position of the first weight and their number."""
        places = np.zeros((len(sigmas), 2), np.int32)
        for rows, weights in group_gaussians(length, sigmas):
            count = weights.shape[1]
            places[rows] = np.stack([self._weights + count * np.arange(len(rows)), np.full(len(rows), count)], axis=1)
            self.weights.append(weights.ravel())
            self._weights += weights.size
        return places


def explain_refusal(op: object) -> str | None:
    """Why an op does not run on a device; None if it does."""
    if type(op) not in _WRITERS:
        return "has no kernel for a device"
    if isinstance(op, RandomErasing) and isinstance(op.value, str):
        return "erases with noise of NumPy's generator, which a device cannot draw"
    if isinstance(op, Grayscale) and op.num_output_channels != 3:
        return "returns one channel, and images on a device have three"
    if isinstance(op, LookupTable) and op.table.ndim == 2 and op.table.shape[1] != 3:
        return f"has tables for {op.table.shape[1]} channels, and images on a device have three"
    return None


def write_steps(op: object, params: Params, writer: StepWriter) -> None:
    """Add the columns of an op for which :func:`explain_refusal` returns None."""
    _WRITERS[type(op)](op, params, writer)


def erase_steps(op: RandomErasing, params: Params, dtype: DType) -> Steps:
    """Return the rectangle of each image and its new value; ``dtype`` is that of the images."""
    steps = StepWriter(len(params), (0, 0)).make_column()
    rectangles = params[:, :4].astype(np.int32)
    steps["kind"] = np.where((rectangles[:, 2] > 0) & (rectangles[:, 3] > 0), _NUMBERS["erase"], NOTHING)
    steps["integers"][:, :2] = rectangles[:, :2]
    steps["integers"][:, 2:] = rectangles[:, :2] + rectangles[:, 2:]
    assert not isinstance(op.value, str), "refused before"
    steps["numbers"][:, :3] = colour_as_dtype(op.value, (1, 1, 3), dtype, op)
    return steps


def _write_jitter(op: ColorJitter, params: Params, writer: StepWriter) -> None:
    names = ("brightness", "contrast", "saturation", "hue")
    kinds = np.array([NOTHING if getattr(op, name) is None else _NUMBERS[name] for name in names])
    for place in params[:, 4:].astype(np.intp).T:
        writer.add(kinds[place], params[np.arange(len(params)), place])


def _write_distortion(op: RandomPhotometricDistort, params: Params, writer: StepWriter) -> None:  # noqa: ARG001
    is_early = params[:, 4] == 1
    order = (("brightness", 0, True), ("contrast", 1, is_early), ("saturation", 2, True), ("hue", 3, True))
    for name, column, is_in in (*order, ("contrast", 1, ~is_early)):
        is_chosen = np.isfinite(params[:, column]) & is_in
        writer.add(np.where(is_chosen, _NUMBERS[name], NOTHING), np.where(is_chosen, params[:, column], 0))
    orders = params[:, 5].astype(np.intp)
    steps = writer.add(np.where(orders > 0, _NUMBERS["permute"], NOTHING))
    steps["integers"][:, :3] = np.array(CHANNEL_ORDERS)[orders]


def _write_hsv(op: RandomHSV, params: Params, writer: StepWriter) -> None:  # noqa: ARG001  # all in the params
    steps = writer.add(_NUMBERS["shift_hsv"])
    sixths = 6 * (params[:, 0] % 1.0)
    steps["numbers"][:, 0] = np.where(sixths < 1, sixths + 6, sixths).astype(np.float32)
    steps["numbers"][:, 1:3] = params[:, 1:3].astype(np.float32)


def _on_chance(name: str, value: Callable[[Any], float] = lambda _: 0.0) -> _Writer:
    """Return the writer of an op whose params are whether an image is changed; its setting is the value of the step."""

    def write(op: object, params: Params, writer: StepWriter) -> None:  # of many types
        writer.add(np.where(params, _NUMBERS[name], NOTHING), value(op))

    return write


def _write_lookup(op: LookupTable, params: Params, writer: StepWriter) -> None:
    steps = writer.add(np.where(params, _NUMBERS["lookup"], NOTHING))
    steps["integers"][:, 0] = len(writer.tables)
    writer.tables.append(np.tile(op.table, 3) if op.table.ndim == 1 else op.table.T.ravel())


def _write_blur(op: GaussianBlur, params: Params, writer: StepWriter) -> None:
    steps = writer.add(_NUMBERS["blur"])
    across, down = op.kernel_size
    steps["integers"][:, :2] = writer.add_gaussians(across, params[:, 0])
    steps["integers"][:, 2:] = steps["integers"][:, :2] if across == down else writer.add_gaussians(down, params[:, 0])


def _write_warp(op: Warp, params: Params, writer: StepWriter) -> None:
    steps = writer.add(NOTHING)
    for place in range(writer.count):
        _set_warp(steps, place, op, op.matrix(params[place], writer.size))


def _set_warp(steps: Steps, place: int, op: Warp, matrix: Matrix | None) -> None:
    if matrix is None:
        return
    options = (_BILINEAR if op.filter == "bilinear" else 0) | (_PROJECTIVE if len(matrix) > 6 else 0)
    steps["kind"][place] = _NUMBERS["warp"]
    steps["integers"][place] = options, *op.fill
    steps["numbers"][place, : len(matrix)] = matrix


def _write_augment(op: RandAugment | TrivialAugmentWide, params: Params, writer: StepWriter) -> None:
    kinds = np.array([_NUMBERS[_IN_SPACE[name]] if name in _IN_SPACE else NOTHING for name in SPACE])
    is_scaled = np.array([name in {"Brightness", "Color", "Contrast", "Sharpness"} for name in SPACE])
    moves = {place: op.moving_op(name) for place, name in enumerate(SPACE) if name not in _IN_SPACE}
    for column in range(0, params.shape[1], 2):
        places, magnitudes = params[:, column].astype(np.intp), params[:, column + 1]
        steps = writer.add(kinds[places], np.where(is_scaled[places], 1.0 + magnitudes, magnitudes))
        for image in np.flatnonzero(np.isin(places, list(moves))).tolist():
            move = moves[int(places[image])]
            _set_warp(steps, image, move, move.matrix(magnitudes[image : image + 1], writer.size))


def _write_erasing(op: RandomErasing, params: Params, writer: StepWriter) -> None:
    writer.columns.append(erase_steps(op, params, np.dtype(np.uint8)))


_Writer = Callable[[Any, Params, StepWriter], None]

_WRITERS: Final[Mapping[type, _Writer]] = {
    ColorJitter: _write_jitter,
    RandomPhotometricDistort: _write_distortion,
    RandomHSV: _write_hsv,
    Grayscale: _on_chance("gray"),
    Posterize: _on_chance("posterize", lambda op: op.bits),
    Solarize: _on_chance("solarize", lambda op: op.threshold),
    Invert: _on_chance("invert"),
    AutoContrast: _on_chance("auto_contrast"),
    Equalize: _on_chance("equalize"),
    Sharpness: _on_chance("sharpen", lambda op: op.sharpness_factor),
    LookupTable: _write_lookup,
    GaussianBlur: _write_blur,
    RandomRotation: _write_warp,
    RandomAffine: _write_warp,
    RandomPerspective: _write_warp,
    RandAugment: _write_augment,
    TrivialAugmentWide: _write_augment,
    RandomErasing: _write_erasing,
}
"""By the exact type of op."""
