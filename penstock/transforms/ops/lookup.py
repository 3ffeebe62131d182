"""LookupTable: any function of single values, such as a gamma curve, as a table of 256 new values."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.sample import Array
from penstock.transforms.base import ImageSpec, require_hwc
from penstock.transforms.checks import FLOAT_ADVICE, is_number
from penstock.transforms.pixel_arithmetic import Pixels, ProbabilisticOp, look_up, look_up_channels

__all__ = ["LookupTable"]


class LookupTable(ProbabilisticOp):
    """Replace each value ``v`` by ``table[v]``, with probability ``p``: ``PIL.Image.point``, ``cv2.LUT``.

    Parameters
    ----------
    table : array_like, shape (256,) or (256, channels)
        New values, integers in [0, 255]: one table for all channels, of any number, or one for each of 1 to 4 channels,
        in the order of the image (RGB as a rule).
    p : float
        Probability, in [0, 1].

    Raises
    ------
    ArgumentError
        If an argument is out of range; later, if an image is not uint8, or has another number of channels.

    Examples
    --------
    >>> import numpy as np
    >>> from penstock import transforms as T
    >>> negative = T.LookupTable(255 - np.arange(256))
    >>> int(T.Pipeline([negative])(np.full((1, 1, 3), 7, np.uint8))[0, 0, 0])
    248
    """

    def __init__(self, table: Sequence[int] | Sequence[Sequence[int]] | Array, p: float = 1.0) -> None:
        super().__init__(p)
        try:
            values = np.asarray(table)
        except ValueError as error:
            raise ArgumentError(f"table must have the shape (256,) or (256, channels), got {table!r:.80}") from error
        if values.shape[:1] != (256,) or (values.ndim != 1 and (values.ndim != 2 or not 1 <= values.shape[1] <= 4)):
            raise ArgumentError(f"table must have the shape (256,) or (256, 1 to 4 channels), got {values.shape}")
        if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > 255:
            raise ArgumentError(
                f"table must have integers in [0, 255], got {values.dtype} from {values.min()} to {values.max()}"
            )
        self.table: NDArray[np.uint8] = values.astype(np.uint8)
        self.table.setflags(write=False)

    @classmethod
    def gamma(cls, gamma: float, gain: float = 1.0, p: float = 1.0) -> Self:
        """Return the table of ``255 * gain * (v / 255) ** gamma``: torchvision's ``adjust_gamma`` on PIL images.

        Parameters
        ----------
        gamma : float
            Not negative; above 1 makes shadows darker, below 1 lighter.
        gain : float
            A factor, not negative.
        p : float
            Probability, in [0, 1].

        Raises
        ------
        ArgumentError
            If an argument is out of range.
        """
        for name, value in (("gamma", gamma), ("gain", gain)):
            if not is_number(value) or not 0 <= value < math.inf:
                raise ArgumentError(f"{name} must be a finite number of at least 0, got {value!r:.80}")
        # truncated after the factor 256 - 0.001, as in torchvision: each result has the same share of values
        return cls([min(int((255 + 1 - 1e-3) * gain * math.pow(v / 255.0, gamma)), 255) for v in range(256)], p)

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec, unchanged."""
        known = require_hwc(spec, self)
        if known.dtype not in {"uint8", None}:
            raise ArgumentError(f"{self!r} needs uint8 images, got {known.dtype}; {FLOAT_ADVICE}")
        if known.channels is not None:
            self._check(known.channels)
        return replace(known, dtype="uint8")

    def change(self, image: Pixels) -> Pixels:
        """Look each value up."""
        if self.table.ndim == 1:
            return look_up(image, self.table)
        return look_up_channels(image, self.table.T)

    def change_native(self, image: Pixels) -> Pixels:
        """Look values up in one table, in less than half the time that NumPy takes."""
        if self.table.ndim == 2:
            return self.change(image)
        values = bytearray(np.ascontiguousarray(image).data.cast("B")).translate(self.table.tobytes())
        return np.frombuffer(values, np.uint8).reshape(image.shape)

    def require(self, image: Array) -> Pixels:
        """``image``, if it is uint8 of the channels of the table."""
        if image.dtype != np.uint8 or image.ndim not in {2, 3}:
            raise ArgumentError(
                f"{self!r} needs uint8 images of shape (H, W, channels) or (H, W), got {image.dtype} of shape "
                f"{image.shape}; {FLOAT_ADVICE}"
            )
        self._check(1 if image.ndim == 2 else image.shape[2])
        return image

    def _check(self, channels: int) -> None:
        if self.table.ndim == 2 and self.table.shape[1] != channels:
            raise ArgumentError(
                f"{self!r} needs images of {self.table.shape[1]} channels, got {channels}; one table of shape (256,) "
                "is for any number"
            )

    def __repr__(self) -> str:
        digest = zlib.crc32(self.table.tobytes())
        return f"LookupTable(table={self.table.shape} {digest:08x}, p={self.p})"
