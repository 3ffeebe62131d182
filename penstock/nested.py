"""Images of several sizes in one array, with a mask of what is padding: the batches of DETR and its kin.

::

    images   (3, 2, 4)  (3, 3, 2)          tensors (2, 3, 4, 4)    mask (2, 4, 4), True where nothing is
                                           1111  22..              ....  ..##
    padded to a multiple of 4              1111  22..              ....  ..##
                                           ....  22..              ####  ..##
                                           ....  ....              ####  ####

Called by :mod:`penstock.datasets.store.batch_forms`. Nothing here knows a dataset or a loader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import SampleError
from penstock.ragged import Allocate, Values
from penstock.sample import Array

__all__ = ["NestedTensor", "find_layout", "image_size", "looks_like_chw", "measure_image", "pad_images"]

_CHANNELS: Final = frozenset({1, 3, 4})


@dataclass(frozen=True, slots=True, eq=False)
class NestedTensor:
    """Images of several sizes, each in the upper left corner of its row; as the class of this name in DETR.

    Parameters
    ----------
    tensors : ndarray or torch.Tensor, shape (n, C, H, W) or (n, H, W, C)
        The images, padded.
    mask : ndarray or torch.Tensor, shape (n, H, W), bool
        True where there is padding.
    """

    tensors: Values
    mask: Values

    def __len__(self) -> int:
        return len(self.tensors)

    def decompose(self) -> tuple[Values, Values]:
        """Return ``(tensors, mask)``."""
        return self.tensors, self.mask

    def to(self, *args: object, **kwargs: object) -> NestedTensor:
        """Tensors moved by ``torch.Tensor.to``, which gets the arguments: a device, not a dtype."""
        return NestedTensor(self.tensors.to(*args, **kwargs), self.mask.to(*args, **kwargs))

    def pin_memory(self) -> NestedTensor:
        """Copy tensors to page-locked memory; called by loaders with ``pin_memory=True``."""
        return NestedTensor(self.tensors.pin_memory(), self.mask.pin_memory())


def find_layout(shape: tuple[int, ...], layout: str | None = None) -> str:
    """The order of the axes of an image of this shape: "CHW", "HWC", or "HW" where there are no channels.

    ``shape``: of one image. ``layout``: {"CHW", "HWC"}: what is known of it. Default: the axis of channels is the one
    of length 1, 3 or 4. Raises SampleError if no axis, or each of the two outer ones, may be that of channels.
    """
    if len(shape) == len("HW"):
        return "HW"
    if len(shape) == len("CHW"):
        if layout is not None:
            return layout
        first, last = shape[0] in _CHANNELS, shape[-1] in _CHANNELS
        if first != last:
            return "CHW" if first else "HWC"
    raise SampleError(
        f"an image must have three axes, of which either the first or the last has 1, 3 or 4 channels, got "
        f"shape {shape}; with a Pipeline as transform=, the order of axes is known"
    )


def image_size(shape: tuple[int, ...], layout: str | None = None) -> tuple[int, int]:
    """Return the height and width of an image of this shape; arguments and errors as for :func:`find_layout`."""
    return (shape[1], shape[2]) if find_layout(shape, layout) == "CHW" else (shape[0], shape[1])


def measure_image(image: object, layout: str | None) -> tuple[int, int]:
    """Width and height of an array of a layout, HWC by default unless its shape is one of CHW; (0, 0) for bytes."""
    shape: tuple[int, ...] = getattr(image, "shape", ())
    first = int(layout == "CHW" or (layout is None and looks_like_chw(shape))) if len(shape) == 3 else 0
    return (int(shape[first + 1]), int(shape[first])) if len(shape) >= 2 else (0, 0)


def looks_like_chw(shape: tuple[int, ...]) -> bool:
    """Return whether an array of this shape is an image with its channels first; False where it may also be HWC."""
    return len(shape) == 3 and shape[2] > 4 and shape[0] in _CHANNELS


def pad_images(
    images: Sequence[Array] | Array,
    *,
    layout: str | None = None,
    multiple: int = 1,
    value: float = 0,
    allocate: Allocate = np.empty,
) -> NestedTensor:
    """Pad images of several sizes, as one array.

    Parameters
    ----------
    images : sequence of ndarray, or ndarray of shape (n, ...)
        At least one; all of one dtype and number of channels. An array is not copied if it needs no padding.
    layout : {"CHW", "HWC"}, optional
        As for :func:`find_layout`.
    multiple : int
        Height and width of the result are multiples of it.
    value : float
        Of padding.
    allocate : callable, optional
        Gives the memory.

    Raises
    ------
    SampleError
        If dtypes or channels differ; names the image's position in the batch.
    """
    shapes = [tuple(image.shape) for image in images]
    sizes = [image_size(shape, layout) for shape in shapes]
    height, width = (-(-max(side) // multiple) * multiple for side in zip(*sizes, strict=True))
    mask = allocate((len(sizes), height, width), np.dtype(np.bool_))
    mask[...] = False
    if isinstance(images, np.ndarray) and sizes[0] == (height, width):
        return NestedTensor(images, mask)
    axes, dtype = find_layout(shapes[0], layout), images[0].dtype
    whole = _padded_shape(shapes[0], axes, (height, width))
    tensors = allocate((len(sizes), *whole), dtype)
    tensors[...] = value
    for position, (image, (rows, columns)) in enumerate(zip(images, sizes, strict=True)):
        if image.dtype != dtype or _padded_shape(image.shape, axes, (height, width)) != whole:
            raise SampleError(
                f"images of a batch must have one dtype and number of channels, got {dtype} of shape {shapes[0]} at "
                f"entry 0 and {image.dtype} of shape {image.shape} at entry {position}"
            )
        row = tensors[position]
        (row[:, :rows, :columns] if axes == "CHW" else row[:rows, :columns])[...] = image
        mask[position, rows:] = mask[position, :, columns:] = True
    return NestedTensor(tensors, mask)


def _padded_shape(shape: tuple[int, ...], axes: str, size: tuple[int, int]) -> tuple[int, ...]:
    if len(shape) != len(axes):
        return ()
    return (shape[0], *size) if axes == "CHW" else (*size, *shape[2:])
