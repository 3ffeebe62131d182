"""Files to pixels in TorchCodec's modes: how libjpeg, libpng, libwebp and giflib are called by TorchCodec 0.17.

::

    file ──decode, or Pillow──> pixels as stored ──mode──> upright ──dtype──> array of (N,) H, W, C

Called by :mod:`penstock.torch.decoders`, which has the arguments, the tensors and the errors. The modes of
:func:`penstock.decode` are Pillow's; where the two differ, the rule stands here: gray of a JPEG is its stored luma, 16
bits of a PNG become 8 rounded, what no frame of a GIF has drawn has the background colour.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import DecodeError
from penstock.orientation import orient_pixels
from penstock.transforms.decoding import fallback, jpeg_markers
from penstock.transforms.decoding.decode import MAX_NBYTES, MAX_PIXELS, decode
from penstock.transforms.decoding.modes import to_sixteen
from penstock.transforms.decoding.native_pixels import decode_values
from penstock.transforms.decoding.tiff_pages import check_nbytes

__all__ = ["READERS", "read_in_mode"]

Pixels = NDArray[np.generic]
_SEPARATE_LUMA: Final = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
"""Adobe's segment for components that are not converted: channel 0 of the decoded pixels is then luma (ITU-T T.872)."""

_LUMA: Final = tuple(np.array([0.2989, 0.587, 0.114], np.float32))
_PNG_LUMA: Final = (9794, 19234, 3740)
"""0.2989 and 0.587 in units of 1 / 32768, and what remains, as libpng computes them."""

_NO_INDEX: Final = -1
_SRGB_GAMMA: Final = 45455
_LINEAR: Final = range(95_000, 105_001)
"""Values of a gAMA chunk that libpng takes for 1."""


def read_in_mode(encoded: bytes, kind: str, mode: str, dtype: str) -> Pixels:
    """Decode a file of a format, one of :data:`READERS`, upright by its Exif.

    Parameters
    ----------
    encoded : bytes
        The whole file.
    kind : {"JPEG", "PNG", "WebP", "GIF"}
        Its format.
    mode : {"RGB", "RGB_ALPHA", "GRAY", "GRAY_ALPHA", "UNCHANGED"}
        The channels.
    dtype : {"uint8", "uint16", "auto"}
        "auto": as many bits as the file has.

    Returns
    -------
    ndarray, shape (height, width, channels) or (frames, height, width, channels)
        Of one frame the first.

    Raises
    ------
    DecodeError
        As :func:`penstock.decode`.
    """
    pixels = READERS[kind](encoded, mode, dtype)
    orientation = 1 if kind == "GIF" else _read_orientation(encoded)
    if orientation > 1 and pixels.ndim == 4:
        pixels = np.stack([orient_pixels(each, orientation) for each in pixels])
    elif orientation > 1:
        pixels = orient_pixels(pixels, orientation)  # type: ignore[arg-type]  # of any dtype
    if dtype == "uint16" and pixels.dtype == np.uint8:
        return to_sixteen(pixels)  # type: ignore[arg-type]  # as its dtype says
    if dtype == "uint8" and pixels.dtype == np.uint16:
        return ((pixels.astype(np.uint32) * 255 + 32895) >> 16).astype(np.uint8)
    return pixels


def _read_orientation(encoded: bytes) -> int:
    """The orientation in the Exif of a file, and not that in its XMP."""
    found = int(_native.orientations([encoded])[0])
    if found or (encoded.startswith(b"\xff\xd8") and not jpeg_markers.has_metadata(encoded)):
        return found or 1
    from PIL.Image import Exif

    with fallback.open_picture(encoded, MAX_PIXELS) as image:
        stored = Exif()
        try:
            stored.load(image.info.get("exif", b""))
            found = stored.get(0x0112, 1)
        except Exception:  # noqa: BLE001  # any error of Pillow's Exif parser on hostile tags, as in `read_tag`
            return 1
        return found if isinstance(found, int) and 1 <= found <= 8 else 1


def _stack(colours: Pixels, mode: str, alpha: Pixels | None = None) -> Pixels:
    """Colours (..., 1 or 3) with alpha if the mode has it: opaque if there is none."""
    if mode.startswith("RGB") and colours.shape[-1] == 1:
        colours = np.repeat(colours, 3, axis=-1)
    if not mode.endswith("_ALPHA"):
        return np.ascontiguousarray(colours)
    if alpha is None:
        alpha = np.full((*colours.shape[:-1], 1), np.iinfo(colours.dtype.name).max, colours.dtype)
    return np.concatenate([colours, alpha], axis=-1)


def _read_jpeg(encoded: bytes, mode: str, _: str) -> Pixels:
    if mode == "UNCHANGED":
        pixels = _read_cmyk(encoded)
        pixels = decode(encoded, mode="unchanged") if pixels is None else pixels
        return pixels if pixels.ndim == 3 else pixels[:, :, None]
    return _stack(_read_luma(encoded) if mode.startswith("GRAY") else decode(encoded), mode)


def _read_luma(jpeg: bytes) -> Pixels:
    """The luma that a JPEG stores, (H, W, 1); of RGB and CMYK, which store none, Pillow's."""
    try:
        return _native.decode(jpeg, None, MAX_PIXELS, max_nbytes=MAX_NBYTES, mode="Y")[:, :, None]
    except (_native.CorruptError, _native.TooLargeError, _native.UnsupportedError):
        return _read_luma_of_refused(jpeg)


def _read_luma_of_refused(jpeg: bytes) -> Pixels:
    """As above, of a file that only Pillow can decode, or nothing can."""
    try:
        is_stored = _native.inspect(jpeg)["color"] == "ycbcr"
    except (_native.CorruptError, _native.UnsupportedError):
        is_stored = False  # whether it is an image, is said below
    if not is_stored:
        return decode(jpeg, mode="L")[:, :, None]
    head = jpeg.find(b"\xff\xda")  # a file that says JFIF, or Adobe's other kinds, is converted
    unmarked = jpeg[2:head].replace(b"JFIF\0", b"jfif\0").replace(b"Adobe", b"adobe")
    return decode(jpeg[:2] + _SEPARATE_LUMA + unmarked + jpeg[head:])[:, :, :1]


def _read_png(encoded: bytes, mode: str, dtype: str) -> Pixels:
    chunks = _read_png_chunks(encoded)
    header = chunks.get(b"IHDR", b"").ljust(13, b"\0")
    depth, kind = header[8], header[9]
    if mode == "RGB" and depth <= 8:
        return decode(encoded)
    key = chunks.get(b"tRNS") if kind in {0, 2, 3} else None
    if key is not None:  # the decoder then keeps samples of 16 bits, and values of less than 8
        stored = len(key).to_bytes(4, "big") + b"tRNS" + key
        before, _, after = encoded.partition(stored)
        encoded = before + after[4:] if after else encoded  # without its checksum
    pixels = decode(encoded, mode="unchanged")
    pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
    channels = 1 if pixels.shape[2] < 3 else 3
    colours, alpha = pixels[:, :, :channels], pixels[:, :, channels:] if pixels.shape[2] in {2, 4} else None
    if mode == "UNCHANGED":
        if kind != 3 or key is None:
            return pixels
        mode = "RGB_ALPHA"
    if key is not None and mode.endswith("_ALPHA"):
        alpha = _find_transparent(encoded, key, depth, colours if kind != 3 else None)
    if mode.startswith("GRAY") and channels == 3:
        colours = _png_luma(colours, chunks, is_reduced=depth == 16 and dtype == "uint8")
    return _stack(colours, mode, alpha)


def _find_transparent(png: bytes, key: bytes, depth: int, colours: Pixels | None) -> Pixels:
    """The alpha that a tRNS chunk means, (H, W, 1): of a palette, or of the one colour that is transparent."""
    if colours is None:
        table = np.full(256, 255, np.uint8)
        table[: len(key)] = np.frombuffer(key[:256], np.uint8)
        indices = decode_values(png, MAX_PIXELS, MAX_NBYTES)
        alpha: Pixels = table[indices][:, :, None]
        return alpha
    most = (1 << depth) - 1
    full = np.iinfo(colours.dtype.name).max
    wanted = [
        (int.from_bytes(key[at : at + 2], "big") & most) * full // most for at in range(0, 2 * colours.shape[2], 2)
    ]
    is_key = (colours == np.array(wanted, colours.dtype)).all(axis=2, keepdims=True)
    return np.where(is_key, 0, full).astype(colours.dtype)


def _png_luma(colours: Pixels, chunks: dict[bytes, bytes], *, is_reduced: bool) -> Pixels:
    """libpng's ``png_set_rgb_to_gray``: in linear light, by tables, if the file states a gamma other than 1.

    The sum is rounded, but not that of 8 bits without a gamma.
    """
    gamma = _SRGB_GAMMA if b"sRGB" in chunks else int.from_bytes(chunks.get(b"gAMA", b""), "big")
    is_plain = not gamma or gamma in _LINEAR
    levels = colours if is_plain else _make_table(colours.dtype, int(1e10 / gamma + 0.5), is_reduced)[colours]
    red, green, blue = (levels[:, :, at].astype(np.uint32) * weight for at, weight in enumerate(_PNG_LUMA))
    half = 0 if is_plain and colours.dtype == np.uint8 else 16384
    gray = ((red + green + blue + half) >> 15).astype(colours.dtype)
    if not is_plain:
        is_gray = (colours == colours[:, :, :1]).all(axis=2)
        gray = np.where(is_gray, colours[:, :, 0], _make_table(colours.dtype, gamma, is_reduced)[gray])
    return gray[:, :, None]


def _make_table(dtype: np.dtype[np.generic], power: int, is_reduced: bool) -> Pixels:
    """Levels raised to a power, in units of 1 / 100,000; samples that become 8 bits lose the lower five before."""
    most, shift = np.iinfo(dtype.name).max, 5 if is_reduced else 0
    levels = (np.arange(most + 1) >> shift) * (1 / (most >> shift))
    table: Pixels = np.floor(most * levels ** (power * 0.00001) + 0.5).astype(dtype)
    return table


def _read_webp(encoded: bytes, mode: str, _: str) -> Pixels:
    is_animated = encoded[12:16] == b"VP8X" and encoded[20:21] != b"" and encoded[20] & 2
    if is_animated:
        frames, has_alpha = _read_frames(encoded)
    else:
        frames = decode(encoded, mode="RGB" if mode in {"RGB", "GRAY"} else "unchanged")
        has_alpha = frames.shape[2] == 4
    return _from_colours(frames, has_alpha, mode)


def _read_gif(encoded: bytes, mode: str, _: str) -> Pixels:
    with fallback.open_picture(encoded, MAX_PIXELS) as image:  # its limits, and what it refuses
        image.load()
    parts = list(_split_gif(encoded))
    if not parts:
        raise DecodeError("this GIF has no image that ends")
    width, height = struct.unpack("<2H", encoded[6:10])
    shape = len(parts), max(height, parts[0].height), max(width, parts[0].width), 4
    check_nbytes(2 * math.prod(shape), MAX_NBYTES)
    frames, canvas = np.empty(shape, np.uint8), np.zeros(shape[1:], np.uint8)
    for frame, part in zip(frames, parts, strict=True):
        place = canvas[part.top :, part.left :][: part.height, : part.width]
        before = canvas.copy() if part.disposal == 3 else None
        indices = part.read_indices()[: place.shape[0], : place.shape[1]]
        is_drawn = indices != part.transparent
        place[is_drawn] = part.colours[indices[is_drawn]]
        frame[:] = canvas
        if part.disposal == 2:
            place[:] = 0
        elif before is not None:
            canvas = before
    has_alpha = any(part.transparent != _NO_INDEX for part in parts)
    if mode in {"RGB", "GRAY"} or (mode == "UNCHANGED" and not has_alpha):
        frames[frames[..., 3] == 0, :3] = _read_colours(_find_table(encoded, 10, 13))[encoded[11], :3]
    return _from_colours(frames if len(frames) > 1 else frames[0], has_alpha, mode)


@dataclass(frozen=True, slots=True)
class _GifPart:
    """One image of a GIF, before it is drawn on what the images before it left."""

    left: int
    top: int
    width: int
    height: int
    colours: NDArray[np.uint8]  # (256, 4)
    transparent: int  # the index that is not drawn
    disposal: int  # 2: its rectangle is cleared afterwards; 3: what was there before is put back
    content: bytes  # a GIF of this image alone

    def read_indices(self) -> NDArray[np.uint8]:
        with fallback.open_picture(self.content, MAX_PIXELS) as image:
            return np.asarray(image)


def _split_gif(gif: bytes) -> Iterator[_GifPart]:
    """The images of a GIF (GIF89a, 18 to 24), one or more; of animations, Pillow leaves out some disposals."""
    common = _find_table(gif, 10, 13)
    at, transparent, disposal = 13 + len(common), _NO_INDEX, 0
    while (kind := gif[at : at + 1]) in {b"!", b","} and at + 10 < len(gif):
        begin, table = at, _find_table(gif, at + 9, at + 10) if kind == b"," else b""
        at += 11 + len(table) if kind == b"," else 2
        while gif[at : at + 1] not in {b"", b"\0"}:  # blocks of data, each with its length before it
            at += gif[at] + 1
        at += 1
        if kind == b"!":
            if gif[begin + 1] == 0xF9:
                disposal, transparent = gif[begin + 3] >> 2 & 7, gif[begin + 6] if gif[begin + 3] & 1 else _NO_INDEX
            continue
        left, top, width, height = struct.unpack("<4H", gif[begin + 1 : begin + 9])
        colours = table or common
        bits = max(len(colours) // 3 - 1, 1).bit_length() - 1
        head = struct.pack("<6s2H3B", b"GIF89a", width, height, 0x80 | bits, 0, 0) + colours.ljust(6, b"\0")
        place = struct.pack("<c4HB", b",", 0, 0, width, height, gif[begin + 9] & 0x40)
        content = head + place + gif[begin + 10 + len(table) : at] + b";"
        yield _GifPart(left, top, width, height, _read_colours(colours), transparent, disposal, content)
        transparent, disposal = _NO_INDEX, 0


def _find_table(gif: bytes, flags: int, at: int) -> bytes:
    """The table of colours at a place, empty if the flags say that there is none."""
    return gif[at : at + (3 << ((gif[flags] & 7) + 1))] if gif[flags] & 0x80 else b""


def _read_colours(table: bytes) -> NDArray[np.uint8]:
    """A table as RGBA, (256, 4); colours that it does not have are black."""
    colours = np.full((256, 4), 255, np.uint8)
    colours[:, :3] = np.frombuffer(table.ljust(768, b"\0"), np.uint8).reshape(256, 3)
    return colours


def _from_colours(pixels: Pixels, has_alpha: bool, mode: str) -> Pixels:
    """RGB or RGBA (..., C) in a mode; gray as torchvision computes it, in float32."""
    if mode == "UNCHANGED":
        mode = "RGB_ALPHA" if has_alpha else "RGB"
    colours, alpha = pixels[..., :3], pixels[..., 3:] if pixels.shape[-1] == 4 else None
    if mode.startswith("GRAY"):
        red, green, blue = (colours[..., at] * weight for at, weight in enumerate(_LUMA))
        colours = np.rint(red + green + blue).astype(np.uint8)[..., None]  # at most 255 x 0.9999
    return _stack(colours, mode, alpha)


def _read_cmyk(jpeg: bytes) -> NDArray[np.uint8] | None:
    """The four channels of a JPEG of CMYK, as Pillow has them; None of another file."""
    frame = jpeg_markers.frame(jpeg)
    if frame is None or frame[2] != 4:
        return None
    decode(jpeg)  # its limits, and what it refuses
    with fallback.open_picture(jpeg, MAX_PIXELS) as image:
        return np.array(image)


def _read_frames(webp: bytes) -> tuple[NDArray[np.uint8], bool]:
    """All frames of an animated WebP, (n, height, width, 4), RGBA; and whether it is stored with alpha."""
    with fallback.open_picture(webp, MAX_PIXELS, MAX_NBYTES) as image:
        shape = getattr(image, "n_frames", 1), image.height, image.width, 4
        check_nbytes(math.prod(shape) + 6 * math.prod(shape[1:]), MAX_NBYTES)
        has_alpha, frames = image.mode == "RGBA", np.empty(shape, np.uint8)
        for number in range(len(frames)):
            image.seek(number)
            frames[number] = np.asarray(image.convert("RGBA"))
    return frames, has_alpha


def _read_png_chunks(png: bytes) -> dict[bytes, bytes]:
    """The chunks of a PNG before its pixels, by name: the first of each."""
    chunks: dict[bytes, bytes] = {}
    for at in fallback.iterate_chunks(png):
        name = png[at + 4 : at + 8]
        if name == b"IDAT":
            break
        chunks.setdefault(name, png[at + 8 : at + 8 + int.from_bytes(png[at : at + 4], "big")])
    return chunks


READERS: Final[dict[str, Callable[[bytes, str, str], Pixels]]] = {
    "JPEG": _read_jpeg,
    "PNG": _read_png,
    "WebP": _read_webp,
    "GIF": _read_gif,
}
"""By format, what decodes a file in a mode, for a dtype, with the bits and in the rows that it has."""
