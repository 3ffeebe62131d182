"""TorchCodec's image decoders, by their names and arguments: ``from penstock.torch.decoders import decode_image``.

Pixels are TorchCodec's, in every mode; what differs is listed in ``docs/torchvision.md``. Files are decoded by
:func:`penstock.decode`, and brought here into modes that only TorchCodec has::

    file ──penstock.decode──> pixels as stored ──mode──> upright ──output_dtype──> tensor, CHW

The rules of the modes are libpng's, libjpeg's and giflib's as TorchCodec 0.17 calls them; of WebP and GIF, gray is
torchvision's ``rgb_to_grayscale``. Datasets and loaders do not use this module: they decode batches into their rows.
"""

from __future__ import annotations

import enum
from os import PathLike
from pathlib import Path
from typing import Literal, overload

import torch

from penstock.errors import ArgumentError, DecodeError, ImageTooLargeError, PenstockError, check_choice
from penstock.transforms.decoding.codec_modes import READERS, read_in_mode
from penstock.transforms.decoding.image_formats import sniff

__all__ = [
    "ImageReadMode",
    "RefusedImageError",
    "SourceTypeError",
    "decode_gif",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "decode_webp",
]

Source = str | PathLike[str] | bytes | bytearray | torch.Tensor
"""A path, the bytes of a file, or these as a tensor: uint8, of one dimension, in the memory of the CPU."""

Mode = str | enum.Enum
OutputDtype = torch.dtype | Literal["auto"]
_DTYPES = {torch.uint8: "uint8", torch.uint16: "uint16", "auto": "auto"}


class ImageReadMode(enum.Enum):
    """TorchCodec's and torchvision's modes. Their names as text, in any case, are taken too."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4
    RGBA = 4  # noqa: PIE796  # another name of it, in TorchCodec


class RefusedImageError(DecodeError, RuntimeError):
    """Bytes that are no readable image: a RuntimeError as TorchCodec raises; the decoder's error is ``__cause__``."""


class SourceTypeError(PenstockError, TypeError):
    """A source that is neither a path nor bytes, or a mode that is no text."""


def decode_image(source: Source, *, mode: Mode = "RGB", output_dtype: OutputDtype = torch.uint8) -> torch.Tensor:
    """Decode a JPEG, PNG, WebP or GIF, recognised by its first bytes.

    Parameters
    ----------
    source : str, path, bytes or Tensor
        A path, the bytes of a file, or a tensor of them: uint8, 1-D, on the CPU.
    mode : {"RGB", "RGB_ALPHA", "GRAY", "GRAY_ALPHA", "UNCHANGED"} or ImageReadMode
        The channels of the result; "UNCHANGED": those of the file, with palettes looked up. Alpha is dropped where it
        is not asked for, and opaque where the file has none.
    output_dtype : torch.uint8, torch.uint16 or "auto"
        "auto": uint16 for PNGs of 16 bits, else uint8. 8 bits become 16 by a factor of 257.

    Returns
    -------
    Tensor, shape (C, H, W)
        Upright by its Exif orientation. (N, C, H, W) for a WebP or GIF of several frames. The memory is that of
        ``channels_last``, as TorchCodec's.

    Raises
    ------
    ArgumentError
        If mode or output_dtype is not one of these, or the tensor is not of such bytes. A ValueError.
    SourceTypeError
        If the source or the mode has another type. A TypeError.
    FileNotFoundError
        If there is no file at the path.
    DecodeError
        If it is of no known format: a ValueError; of AVIF or HEIC, the message names :func:`penstock.decode`.
    RefusedImageError
        If the image is damaged or truncated: a DecodeError and a RuntimeError.
    ImageTooLargeError
        If it has more than 2**27 pixels, or takes more than 1.25 GiB.

    Examples
    --------
    >>> import io
    >>> from PIL import Image
    >>> from penstock.torch.decoders import decode_image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (64, 48), "white").save(file, "PNG")
    >>> decode_image(file.getvalue(), mode="GRAY").shape
    torch.Size([1, 48, 64])
    """
    encoded = _read_source(source)
    kind = sniff(encoded[:32])
    if kind not in READERS:
        raise DecodeError(
            f"decode_image reads {', '.join(READERS)}, got a file of the format {kind}; penstock.decode gives its "
            "pixels as an array"
        )
    return _decode(encoded, mode, output_dtype, kind)


@overload
def decode_jpeg(
    source: Source, *, mode: Mode = ..., output_dtype: OutputDtype = ..., device: str | torch.device = ...
) -> torch.Tensor: ...
@overload
def decode_jpeg(
    source: list[Source] | tuple[Source, ...],
    *,
    mode: Mode = ...,
    output_dtype: OutputDtype = ...,
    device: str | torch.device = ...,
) -> list[torch.Tensor]: ...
def decode_jpeg(
    source: Source | list[Source] | tuple[Source, ...],
    *,
    mode: Mode = "RGB",
    output_dtype: OutputDtype = torch.uint8,
    device: str | torch.device = "cpu",
) -> torch.Tensor | list[torch.Tensor]:
    """Decode a JPEG, or each of a list; parameters and errors are those of :func:`decode_image`.

    A list or tuple of sources becomes a list of tensors. "UNCHANGED" of CMYK has four channels, as in Pillow.
    ``device``: the pixels are decoded by the CPU, with the same values on every device, and copied there; TorchCodec
    decodes on CUDA by nvJPEG, whose pixels differ.
    """
    if isinstance(source, list | tuple):
        return [_decode(each, mode, output_dtype, "JPEG").to(device) for each in source]
    return _decode(source, mode, output_dtype, "JPEG").to(device)


def decode_png(source: Source, *, mode: Mode = "RGB", output_dtype: OutputDtype = torch.uint8) -> torch.Tensor:
    """Decode a PNG; see :func:`decode_image`.

    16 bits become 8 rounded, not by ``>> 8`` as in :func:`penstock.decode`. "GRAY" of colours is computed in linear
    light where the file states its gamma, as libpng does. One transparent colour (tRNS) is alpha, but not with
    "UNCHANGED".
    """
    return _decode(source, mode, output_dtype, "PNG")


def decode_webp(source: Source, *, mode: Mode = "RGB", output_dtype: OutputDtype = torch.uint8) -> torch.Tensor:
    """Decode a WebP, (N, C, H, W) if it is animated; see :func:`decode_image`."""
    return _decode(source, mode, output_dtype, "WebP")


def decode_gif(source: Source, *, mode: Mode = "RGB", output_dtype: OutputDtype = torch.uint8) -> torch.Tensor:
    """Decode a GIF, (N, C, H, W) if it has several frames; see :func:`decode_image`.

    Without alpha, what no frame has drawn has the background colour of the file; in Pillow, that of the transparent
    index.
    """
    return _decode(source, mode, output_dtype, "GIF")


def _decode(source: object, mode: object, output_dtype: object, kind: str) -> torch.Tensor:
    if output_dtype not in _DTYPES:
        raise ArgumentError(f"output_dtype must be torch.uint8, torch.uint16 or 'auto', got {output_dtype!r:.80}")
    name = getattr(mode, "name", mode)
    if not isinstance(name, str):
        raise SourceTypeError(f"mode must be a text such as 'RGB', or an ImageReadMode, got {type(mode).__name__}")
    name = name.upper()
    check_choice("mode", name, tuple(ImageReadMode.__members__))
    encoded = _read_source(source)
    try:
        pixels = read_in_mode(encoded, kind, ImageReadMode[name].name, _DTYPES[output_dtype])
    except ImageTooLargeError:
        raise
    except DecodeError as error:
        raise RefusedImageError(error.message, **error.where) from error
    return torch.from_numpy(pixels.transpose((2, 0, 1) if pixels.ndim == 3 else (0, 3, 1, 2)))


def _read_source(source: object) -> bytes:
    if isinstance(source, bytes | bytearray):
        return bytes(source)
    if isinstance(source, str | PathLike):
        return Path(source).read_bytes()
    if not isinstance(source, torch.Tensor):
        raise SourceTypeError(f"source must be a path, bytes or a tensor of bytes, got {type(source).__name__}")
    if source.dtype != torch.uint8 or source.ndim != 1 or source.device.type != "cpu":
        raise ArgumentError(
            "a tensor to decode must have the bytes of a file: uint8, 1-D, on the CPU; got "
            f"{source.dtype}, {source.ndim}-D, on {source.device}"
        )
    return source.numpy().tobytes()
