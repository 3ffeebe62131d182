"""Conversion of pictures to sRGB by their own ICC profile, by Pillow's ImageCms (LittleCMS)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import DecodeError, UnsupportedImageError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["convert_to_srgb", "may_have_profile"]


def may_have_profile(jpeg: bytes) -> bool:
    """Return whether a JPEG may hold an ICC profile."""
    return b"ICC_PROFILE\0" in jpeg


def convert_to_srgb(image: Image) -> Image:
    """Return a loaded picture in sRGB, of mode RGB or RGBA; the picture itself, if it has no profile.

    The rendering intent is perceptual; alpha is unchanged.

    Raises DecodeError if the profile is damaged, or not one of the picture's colours. Raises UnsupportedImageError if
    the installed Pillow cannot convert colours.
    """
    profile = image.info.get("icc_profile")
    if not profile:
        return image
    try:
        from PIL import ImageCms

        target = ImageCms.createProfile("sRGB")
    except ImportError as error:
        raise UnsupportedImageError("the installed Pillow is built without LittleCMS, which to_srgb needs") from error
    picture = _as_convertible(image)
    alpha = picture.getchannel("A") if picture.mode in {"LA", "RGBA"} else None
    colours = picture if alpha is None else picture.convert(picture.mode[:-1])
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        converted = ImageCms.profileToProfile(colours, source, target, outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError) as error:
        raise DecodeError(
            f"its ICC profile of {len(profile)} bytes cannot be applied to a picture of mode {colours.mode}: {error}"
        ) from error
    assert converted is not None, "not converted in place"
    if alpha is not None:
        converted.putalpha(alpha)
    return converted


def _as_convertible(image: Image) -> Image:
    """Return the picture in a mode that profiles describe: palettes looked up, 16 bits reduced to 8."""
    from PIL.Image import fromarray

    if image.mode.startswith("I;16"):
        return fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in {"P", "PA", "RGBa"} or "transparency" in image.info:
        return image.convert("RGBA" if image.has_transparency_data else "RGB")
    return image.convert("L") if image.mode == "1" else image
