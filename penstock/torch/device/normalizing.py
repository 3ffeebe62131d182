"""Images travel as uint8 and become normalised floats on the device: a step for :func:`~penstock.torch.prefetch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from penstock.errors import ArgumentError
from penstock.torch.device.batches import map_tensors

__all__ = ["normalize_on_device"]


def normalize_on_device(
    mean: float | Sequence[float],
    std: float | Sequence[float],
    *,
    dtype: torch.dtype = torch.float32,
    layout: str = "CHW",
) -> Callable[[Any], Any]:
    """A ``transform`` for :func:`prefetch` that normalises images on the device: a quarter of the bytes are copied.

    Parameters
    ----------
    mean, std : float, or sequence of float
        Per channel, or one number for all, on the scale 0 to 1, as for :class:`penstock.transforms.Normalize`.
    dtype : torch.dtype
        Of the result; the arithmetic is float32.
    layout : {"CHW", "HWC"}
        Of the images, as :class:`penstock.transforms.ToLayout` gave them.

    Returns
    -------
    callable
        From a batch to the same with every uint8 tensor of four axes normalised, to the bit as Normalize does it on
        the CPU; other tensors stay.

    Raises
    ------
    ArgumentError
        If ``mean`` and ``std`` are not equally many numbers, std positive; when called, if the batch has no images, or
        images with another number of channels.
    """
    mean, std = ((values,) if isinstance(values, int | float) else tuple(values) for values in (mean, std))
    if len(mean) != len(std) or not mean or not all(value > 0 for value in std):
        raise ArgumentError(f"mean={mean!r} and std={std!r} are equally many numbers, std positive")
    if layout not in {"CHW", "HWC"}:
        raise ArgumentError(f"layout={layout!r}: 'CHW' or 'HWC'")
    return _Normalize(mean, std, dtype, layout)


class _Normalize:
    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], dtype: torch.dtype, layout: str) -> None:
        shape = (-1, 1, 1) if layout == "CHW" else (-1,)
        self._axis = 1 if layout == "CHW" else 3
        self._channels, self._layout, self._dtype = len(mean), layout, dtype
        exact_mean, exact_std = torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)
        self._scale = (1 / (255 * exact_std)).float().reshape(shape)
        self._offset = (-exact_mean / exact_std).float().reshape(shape)
        self._on: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, batch: Any) -> Any:
        normalized = map_tensors(self._normalized, batch)
        if normalized is batch:
            raise ArgumentError("the batch has no images to normalise: no uint8 tensor of four axes")
        return normalized

    def _normalized(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype != torch.uint8 or tensor.dim() != 4:
            return tensor
        if self._channels not in {1, tensor.shape[self._axis]}:
            raise ArgumentError(
                f"images of shape {tuple(tensor.shape)} have not the {self._channels} channels of mean and std "
                f"in layout={self._layout!r}"
            )
        if tensor.device not in self._on:
            self._on[tensor.device] = self._scale.to(tensor.device), self._offset.to(tensor.device)
        scale, offset = self._on[tensor.device]
        return tensor.float().mul_(scale).add_(offset).to(self._dtype)
