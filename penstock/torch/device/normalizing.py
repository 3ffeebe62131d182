"""Normalise uint8 images on the device: a ``transform`` for :func:`~penstock.torch.prefetch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from penstock.errors import ArgumentError
from penstock.sample import Batch
from penstock.torch.device.batches import map_tensors

__all__ = ["normalize_on_device"]


def normalize_on_device(
    mean: float | Sequence[float],
    std: float | Sequence[float],
    *,
    dtype: torch.dtype = torch.float32,
    layout: str = "CHW",
) -> Callable[[Batch], Batch]:
    """Create a ``transform`` for :func:`prefetch` that normalises images on the device.

    Images are copied as uint8, a quarter of the bytes of float32.

    Parameters
    ----------
    mean, std : float, or sequence of float
        For each channel, or one number for all, on the scale 0 to 1, as for :class:`penstock.transforms.Normalize`.
    dtype : torch.dtype
        The dtype of the result. The arithmetic is float32.
    layout : {"CHW", "HWC"}
        The layout of the images, as in :class:`penstock.transforms.ToLayout`.

    Returns
    -------
    callable
        It takes a batch and returns it with every uint8 tensor of four axes normalised. The values are equal, bit by
        bit, to those of Normalize on the CPU. Other tensors are returned unchanged.

    Raises
    ------
    ArgumentError
        If ``mean`` and ``std`` differ in length or are empty, or a number in ``std`` is not positive. The callable
        raises it if the batch has no images, or images with another number of channels.
    """
    mean, std = ((values,) if isinstance(values, int | float) else tuple(values) for values in (mean, std))
    if len(mean) != len(std) or not mean or not all(value > 0 for value in std):
        raise ArgumentError(
            f"mean and std must have the same length, and std must be positive, got mean={mean!r} and std={std!r}"
        )
    if layout not in {"CHW", "HWC"}:
        raise ArgumentError(f"layout must be 'CHW' or 'HWC', got {layout!r}")
    return _NormalizeOnDevice(mean, std, dtype, layout)


class _NormalizeOnDevice:
    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], dtype: torch.dtype, layout: str) -> None:
        shape = (-1, 1, 1) if layout == "CHW" else (-1,)
        self._axis = 1 if layout == "CHW" else 3
        self._channels, self._layout, self._dtype = len(mean), layout, dtype
        exact_mean, exact_std = torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)
        self._scale = (1 / (255 * exact_std)).float().reshape(shape)
        self._offset = (-exact_mean / exact_std).float().reshape(shape)
        self._constants: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, batch: Batch) -> Batch:
        normalized = map_tensors(self._normalize, batch)
        if normalized is batch:
            raise ArgumentError("the batch must have images, as uint8 tensors of four axes, but it has none")
        return normalized

    def _normalize(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype != torch.uint8 or tensor.dim() != 4:
            return tensor
        if self._channels not in {1, tensor.shape[self._axis]}:
            raise ArgumentError(
                f"images must have {self._channels} channels, as mean and std, in layout={self._layout!r}, got shape "
                f"{tuple(tensor.shape)}"
            )
        if tensor.device not in self._constants:
            self._constants[tensor.device] = self._scale.to(tensor.device), self._offset.to(tensor.device)
        scale, offset = self._constants[tensor.device]
        return tensor.float().mul_(scale).add_(offset).to(self._dtype)
