"""Inputs of ops that need pixels: NumPy arrays as they are, PIL images as arrays; other objects are refused.

Called by pipelines and programs before such ops. Axes of tensors are not permuted, and files are not opened; the error
says how to do it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from penstock.errors import ArgumentError
from penstock.nested import looks_like_chw
from penstock.sample import Array
from penstock.transforms.base import ImageLike, ImageSpec, Op
from penstock.transforms.decoding import fallback

__all__ = [
    "as_bytes",
    "as_mask",
    "as_pixels",
    "find_layouts",
    "is_decoded",
    "is_encoded",
    "is_pil",
    "is_tensor",
    "refuse_layout",
]


def is_decoded(value: object) -> bool:
    """Return whether ``value`` is an array of pixels, not of the bytes of a file."""
    return isinstance(value, np.ndarray) and value.ndim >= 2


def as_bytes(data: ImageLike) -> bytes:
    """Return the bytes of a file; not copied if they are ``bytes``.

    Raises ArgumentError if ``data`` is a path, or decoded already.
    """
    if isinstance(data, bytes):
        return data
    if is_decoded(data) or is_pil(data) or is_tensor(data):
        kind = "a tensor" if is_tensor(data) else "an array"
        what = "a PIL image" if is_pil(data) else f"{kind} of shape {tuple(data.shape)}"
        raise ArgumentError(
            f"an image to decode must be a file's bytes, got {what}, which is decoded already; leave Decode out of its "
            "pipeline"
        )
    if isinstance(data, str | os.PathLike):
        raise ArgumentError(
            f"an image to decode must be a file's bytes, got the path {data!r}; give Path(path).read_bytes()"
        )
    try:
        return bytes(data) if isinstance(data, bytearray | memoryview) else memoryview(data).tobytes()
    except TypeError as error:
        raise ArgumentError(f"an image to decode must be bytes-like, got {type(data).__name__}") from error


def as_pixels(image: ImageLike, op: Op) -> Array:
    """Return an image as an array, for ``op``."""
    if isinstance(image, np.ndarray):
        return image
    return fallback.pil_pixels(image) if is_pil(image) else _refuse(image, op, "an image")


def as_mask(mask: ImageLike, op: Op) -> Array:
    """Return a mask as an array, for ``op``; values are unchanged."""
    if isinstance(mask, np.ndarray):
        return mask
    return fallback.pil_channel(mask) if is_pil(mask) else _refuse(mask, op, "a mask")


def refuse_layout(image: Array, op: Op) -> None:
    """Raise unless an array of unknown layout is HWC or HW, and not empty."""
    shape = image.shape
    if len(shape) not in {2, 3} or 0 in shape:
        raise ArgumentError(f"{op!r} needs an image of shape HWC or HW, got an array of shape {shape}")
    if looks_like_chw(shape) and not op.leaves_pixels:
        raise ArgumentError(
            f"{op!r} needs an HWC image, got an array of shape {shape}, which looks like CHW; give "
            "image.transpose(1, 2, 0)"
        )


def find_layouts(ops: Sequence[Op]) -> tuple[str | None, ...]:
    """Return the layout of images before each op and after the last.

    It is None if unknown: at first, and behind a callable.
    """
    layouts: list[str | None] = [None]
    for op in ops:
        layout = layouts[-1]
        spec = op.spec(ImageSpec(layout=layout or "HWC", channels=None)) if layout or not op.leaves_pixels else None
        layouts.append(None if spec is None else spec.layout)
    return tuple(layouts)


def is_encoded(value: object) -> TypeGuard[bytes | bytearray | memoryview]:
    """Return whether ``value`` is the bytes of a file."""
    return isinstance(value, bytes | bytearray | memoryview)


def is_pil(value: object) -> bool:
    """Return whether ``value`` is a PIL image; does not import Pillow."""
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(value, pil.Image)


def is_tensor(value: object) -> bool:
    """Return whether ``value`` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _refuse(value: ImageLike, op: Op, what: str) -> Array:
    if is_encoded(value):
        raise ArgumentError(
            f"{op!r} needs pixels, got {what} that is encoded ({len(value)} bytes); put T.Decode() first in the "
            "pipeline"
        )
    if is_tensor(value):
        raise ArgumentError(
            f"{op!r} needs an HWC array, got a tensor of shape {tuple(value.shape)}; give "
            f"{'tensor.permute(1, 2, 0).numpy()' if value.dim() == 3 else 'tensor.numpy()'}"
        )
    raise ArgumentError(
        f"{op!r} needs {what} as a NumPy array of shape HWC or HW, or a PIL image, got {type(value).__name__}: "
        f"{value!r:.80}"
    )
