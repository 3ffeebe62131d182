# Made by native/stubs.py from the native module; do not edit.
# ruff: noqa: A002  (`filter` is the word for it)
"""
Penstock's native core: decoding of JPEG, PNG and WebP, resizing and filling batches, without the GIL.

Work is done on the calling thread, unless more threads are requested. Images are HWC uint8 RGB; encoded images are
bytes, bytearray, memoryview or one-dimensional uint8 arrays. Every function may be called from any number of
threads at once. Arrays must not be written to while a call reads them, and a row of a batch must not be written by
two calls at once.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Any, Final, SupportsFloat, SupportsIndex

from _typeshed import SupportsGetItem, SupportsLenAndGetItem
from numpy import float16, float32, float64, int32, int64, uint8, uint16, uint64
from numpy.typing import NDArray
from typing_extensions import Buffer

__all__ = [
    "GEOMETRY_COLUMNS",
    "STEP_NUMBERS",
    "CorruptError",
    "TooLargeError",
    "UnsupportedError",
    "adjust",
    "blur",
    "blur_floats",
    "build_index",
    "coefficients_from_jpeg",
    "concat",
    "crc32c",
    "decode",
    "decode_damaged",
    "decode_samples",
    "decode_values",
    "draw_geometry",
    "example_features",
    "features",
    "fill",
    "fill_arrays",
    "fill_parts",
    "fill_pixels",
    "fill_samples",
    "fill_stored",
    "find_blobs",
    "gather",
    "hash_pages",
    "inspect",
    "inspect_index",
    "jpeg_from_coefficients",
    "level_override",
    "mix",
    "orientations",
    "read_ahead",
    "read_tables",
    "resize",
    "resize_samples",
    "resized_crop_windows",
    "sharpen",
    "shift_hsv",
    "sizes",
    "transcode_baseline",
    "uniforms",
    "warp",
    "warp_window",
    "write_at",
    "write_packets",
]

class CorruptError(ValueError):
    """Bytes that are not a valid image. The message says where."""

class TooLargeError(ValueError):
    """More pixels than `max_pixels`, or more bytes for decoding than `max_nbytes`. Nothing was allocated."""

class UnsupportedError(ValueError):
    """A kind of image that these decoders do not support: CMYK, 12 bits, a progressive file without all scans ..."""

GEOMETRY_COLUMNS: Final[int]
"""
Number of columns of `fill`'s geometry.
"""

STEP_NUMBERS: Final[int]
"""
Numbers of a step of `draw_geometry`.
"""

def adjust(
    image: NDArray[uint8], steps: SupportsGetItem[int, tuple[str, SupportsFloat | SupportsIndex]]
) -> NDArray[uint8]:
    """
    Adjusts an image's values, step by step.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), uint8
        C-contiguous.
    steps : sequence of (str, float)
        ``"brightness"``, ``"contrast"``, ``"saturation"`` (factors), ``"hue"`` (turns), ``"gray"``, ``"posterize"``
        (bits), ``"solarize"`` (threshold), ``"invert"``, ``"auto_contrast"``, ``"equalize"``. The value of a step
        without a word in brackets is ignored. Steps are applied one after another, each rounded to 8 bits.

    Returns
    -------
    ndarray, uint8
        A new array of the image's shape. It equals the result of the functions of these names in `penstock.transforms`,
        bit for bit.

    Raises
    ------
    TypeError, ValueError
        An invalid image or step.
    """

def blur(image: NDArray[uint8], across: NDArray[float32], down: NDArray[float32]) -> NDArray[uint8]:
    """
    Blurs an image with two symmetric sets of weights.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), uint8
        C-contiguous. Its borders are extended as by ``numpy.pad(..., "reflect")``.
    across, down : ndarray, shape (odd,), float32
        Weights along a row and along a column. Only the first half and the middle are used.

    Returns
    -------
    ndarray, uint8
        A new array of the image's shape. It equals the specification of `penstock.transforms.GaussianBlur`, bit for
        bit.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments.
    """

def blur_floats(image: NDArray[float32], across: NDArray[float32], down: NDArray[float32]) -> NDArray[float32]:
    """
    Blurs a float image. See `blur`.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), float32
        C-contiguous.
    across, down : ndarray, shape (odd,), float32
        As for `blur`.

    Returns
    -------
    ndarray, float32
        A new array of the image's shape.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments.
    """

def build_index(image: Buffer, kind: str = "rows", max_pixels: SupportsIndex = 134217728) -> bytes:
    """
    Makes the index of a JPEG: where decoding may begin inside it. With it, a crop reads only what it needs.

    Parameters
    ----------
    image : buffer
        The encoded image. It is not changed.
    kind : {"rows", "tiles"}
        Places where decoding may begin: every row of MCUs (about 0.24 % of the file's size), or about every 64
        pixels of each row (2 %).
    max_pixels : int
        Largest width times height that the header may declare.

    Returns
    -------
    bytes
        The index, for `fill` and `decode` with this image. A check of 64 bits binds it to the image.

    Raises
    ------
    UnsupportedError, CorruptError, TooLargeError
        As for `decode` of the whole image.
    ValueError
        `kind` is neither of the two.
    """

def coefficients_from_jpeg(
    image: Buffer, max_pixels: SupportsIndex = 134217728, max_nbytes: SupportsIndex = 1342177280
) -> bytes:
    """
    Stores the coefficients of a JPEG in a form that decodes faster, without loss.

    Parameters
    ----------
    image : buffer
        A JPEG, baseline or progressive.
    max_pixels, max_nbytes : int
        As for `decode`.

    Returns
    -------
    bytes
        A record of coefficients, from which `jpeg_from_coefficients` makes the same file, byte for byte: this has been
        checked. All functions that take an encoded image take it in place of the JPEG, and give the same pixels.

    Raises
    ------
    UnsupportedError
        The file would not come back byte for byte, or `decode` does not support its kind, or it is such a record.
    CorruptError, TooLargeError, MemoryError
        As for `decode`.
    """

def concat(parts: SupportsGetItem[int, NDArray[Any]], out: NDArray[Any]) -> None:
    """
    Copies arrays one after another, as stacking samples into a batch does. Large targets are written past the cache.

    Parameters
    ----------
    parts : sequence of ndarray
        C-contiguous, of any shapes; plain numbers (bool, integers, floats, complex) in native byte order; one axis or
        more.
    out : ndarray
        Plain numbers, as many bytes as all parts together; writable and C-contiguous. It must not overlap a part.

    Raises
    ------
    TypeError
        Objects, strings, records or another byte order. Nothing was written.
    BufferError, ValueError
        Other invalid arguments. Nothing was written.
    """

def crc32c(content: Buffer) -> int:
    """
    Returns the CRC-32C (Castagnoli) of bytes, as RFC 3720 defines it.

    Parameters
    ----------
    content : buffer
        Contiguous bytes.

    Returns
    -------
    int
        0 to 2**32 - 1; 0 for no bytes.

    Raises
    ------
    TypeError
        ``content`` is not contiguous bytes in one dimension.
    """

def decode(
    image: Buffer,
    region: tuple[SupportsIndex, SupportsIndex, SupportsIndex, SupportsIndex] | None = None,
    max_pixels: SupportsIndex = 134217728,
    scale: SupportsIndex = 1,
    *,
    max_nbytes: SupportsIndex = 1342177280,
    index: Buffer | None = None,
    learn: str | None = None,
    found: list[tuple[int, bool, bytes | None]] | None = None,
    threads: SupportsIndex = 1,
    mode: str = "RGB",
) -> NDArray[uint8]:
    """
    Decodes a JPEG, PNG or WebP, or a region of it.

    Parameters
    ----------
    image : buffer
        The encoded image.
    region : tuple of four int, optional
        x0, y0, x1, y1 in pixels, inside the image. The pixels equal those of the whole image, cropped. Rows below
        the region are not decoded. Of a JPEG of several scans, everything above and beside the region is decoded.
    max_pixels : int
        Largest width times height that the header may declare.
    max_nbytes : int
        Largest number of bytes that decoding may take: the result, and what the decoder holds of the whole image. That
        is, of a JPEG of several scans (as progressive images have) 136 for each block of 8 x 8 samples, 6.4 per pixel
        in 4:4:4; of an interlaced PNG its pixels; of a WebP 3 per pixel, and 8 if it is lossless. The default is enough
        for JPEGs of the default of `max_pixels`.
    scale : {1, 2, 4, 8}
        Decode a JPEG at 1/scale of the size with libjpeg's scaled inverse DCT; other formats have only 1. Sizes are
        rounded up, and the region is rounded outward: ``x0 // scale`` to ``ceil(x1 / scale)``.
    index, learn, found, threads
        As for `fill`, for this image only. Its number is 0.
    mode : {"RGB", "BGR", "L", "Y", "RGBA"}
        The channels of the result. "L": Pillow's ``convert("L")`` of the RGB pixels. "Y": the luma that a JPEG stores,
        as libjpeg's grayscale output; "L" of files that store none. "RGBA": with the alpha of a PNG, 255 for images
        without alpha; that of a WebP, and of transparent colours, is not supported.

    Returns
    -------
    ndarray, shape (height, width, 3), (height, width) or (height, width, 4), uint8
        A new array. A gray image has three equal channels; alpha is dropped; of 16 bits, the high 8 are used.
        JPEGs are bit-exact with libjpeg-turbo's slow integer IDCT and fancy upsampling.

    Raises
    ------
    UnsupportedError
        The decoder does not support this kind of file.
    CorruptError
        The bytes are damaged, or no image of these formats.
    TooLargeError
        More than `max_pixels` or `max_nbytes`. Nothing was allocated.
    MemoryError
        The system has no more memory.
    ValueError
        The region does not lie inside the image, or another argument is invalid.
    """

def decode_damaged(
    image: Buffer,
    region: tuple[SupportsIndex, SupportsIndex, SupportsIndex, SupportsIndex] | None = None,
    max_pixels: SupportsIndex = 134217728,
    scale: SupportsIndex = 1,
    *,
    max_nbytes: SupportsIndex = 1342177280,
) -> NDArray[uint8]:
    """
    Decodes a JPEG that is damaged or ends too early, or a region of it, as libjpeg-turbo does.

    Parameters
    ----------
    image : buffer
        The encoded image. Its header must be whole.
    region, max_pixels, max_nbytes, scale
        As for `decode`. `max_nbytes` is the limit for the coefficients of images of one scan, too.

    Returns
    -------
    ndarray, shape (height, width, 3), uint8
        RGB, a new array. What is missing is gray; damaged data are read on from the next restart marker; missing
        scans of a progressive image are estimated. Bit-exact with libjpeg-turbo 3.

    Raises
    ------
    CorruptError
        The header is damaged, or nearly all of the image is missing.
    UnsupportedError, TooLargeError, MemoryError, ValueError
        As for `decode`.
    """

def decode_samples(
    image: Buffer,
    region: tuple[SupportsIndex, SupportsIndex, SupportsIndex, SupportsIndex] | None = None,
    max_pixels: SupportsIndex = 134217728,
    *,
    max_nbytes: SupportsIndex = 1342177280,
) -> NDArray[uint16]:
    """
    Decodes the samples of a PNG of 16 bits, or of a region of it, as they are stored.

    Parameters
    ----------
    image : buffer
        The encoded image.
    region : tuple of four int, optional
        As for `decode`.
    max_pixels, max_nbytes : int
        As for `decode`.

    Returns
    -------
    ndarray, shape (height, width, channels), uint16
        A new array of gray, gray and alpha, RGB or RGBA.

    Raises
    ------
    UnsupportedError
        Not a PNG, one of at most 8 bits, or one with a transparent colour.
    CorruptError, TooLargeError, MemoryError, ValueError
        As for `decode`.
    """

def decode_values(
    image: Buffer, max_pixels: SupportsIndex = 134217728, *, max_nbytes: SupportsIndex = 1342177280
) -> NDArray[uint8 | uint16]:
    """
    Decodes the values of a PNG of one channel: a mask.

    Parameters
    ----------
    image : buffer
        The encoded image.
    max_pixels, max_nbytes : int
        As for `decode`.

    Returns
    -------
    ndarray, shape (height, width), uint8 or uint16
        Indices of a palette, or gray levels. Levels of less than 8 bits are brought to 8.

    Raises
    ------
    UnsupportedError
        Not a PNG, or one of several channels.
    CorruptError, TooLargeError, MemoryError
        As for `decode`.
    """

def draw_geometry(
    steps: NDArray[float64], seed: int, epoch: int, indices: NDArray[int64], sizes: NDArray[int32]
) -> NDArray[int32] | None:
    """
    Draws the windows and flips of each sample of a chunk, and composes them to the geometry of `fill`.

    Parameters
    ----------
    steps : ndarray, shape (k, 10), float64
        The ops that move pixels, in order: the kind, the stream of its random numbers, and its settings.
        0: RandomResizedCrop, with `scale`, `ratio`, `log_ratio` (see `resized_crop_windows`), width, height.
        1: CenterCrop and 2: Resize, with width, height. 3: Resize of the shorter side, with its length.
        4: a flip, with its probability, and the bit of its axis in the geometry.
    seed, epoch, indices
        As for `uniforms`.
    sizes : ndarray, shape (n, 2), int32
        Width and height of each image.

    Returns
    -------
    ndarray, shape (n, 9), int32, or None
        A new array. None if there is an image whose size is not known, or whose window it does not contain.

    Raises
    ------
    ValueError
        Invalid arguments.
    """

def example_features(record: Buffer) -> list[tuple[str, int, Any]]:
    """
    Returns the features of a serialised ``tf.train.Example``.

    Parameters
    ----------
    record : buffer
        Contiguous bytes.

    Returns
    -------
    list of (str, int, list or bytes)
        Name, kind and values of each feature. Kind 0: no values, ``b""``. Kind 1: byte strings, a list of tuples
        (begin, end) of offsets in the record. Kind 2: floats, little-endian float32. Kind 3: integers, little-endian
        int64.

    Raises
    ------
    TypeError
        ``record`` is not contiguous bytes in one dimension.
    ValueError
        The bytes are not such a message.
    """

def features() -> list[str]:
    """
    Returns the processor features that the kernels use. It is empty where they are portable code.

    Returns
    -------
    list of str
        For instance ``["avx2", "bmi2", "fma", "f16c"]``.
    """

def fill(
    images: Sequence[Buffer],
    geometry: NDArray[int32],
    out: NDArray[uint8 | uint16 | float16 | float32],
    rows: NDArray[int64],
    *,
    layout: str,
    filter: str,
    scale: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None,
    offset: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None,
    max_pixels: SupportsIndex = 134217728,
    max_nbytes: SupportsIndex = 1342177280,
    orientations: NDArray[uint8] | None = None,
    beside: SupportsLenAndGetItem[SupportsIndex] | None = None,
    quality: SupportsFloat | SupportsIndex | None = None,
    indices: Sequence[Buffer | None] | None = None,
    learn: str | None = None,
    found: list[tuple[int, bool, bytes | None]] | None = None,
    threads: SupportsIndex = 1,
    mode: str = "RGB",
    late_color: bool = False,
) -> tuple[list[tuple[int, str, str]], int, int]:
    """
    Fills rows of a batch from encoded images: decode, crop, resize, flip, normalise.

    Parameters
    ----------
    images : sequence of buffer
        ``n`` encoded images. If the sequence has attributes `buffer` and `places`, an ndarray, shape (n, 2), int64,
        image ``i`` is ``buffer[places[i, 0] : places[i, 1]]``, and no object is made for it.
    geometry : ndarray, shape (n, 9), int32
        x0, y0, x1, y1 (the region of the image), width, height (its size after resizing), left, top (the position
        of the output's H x W window in that; inside it, unless `beside` is given), flip (bit 0: left and right, bit
        1: top and bottom; applied last).
    out : ndarray, shape (N, H, W, C) or (N, C, H, W), uint8, float16, float32 or uint16
        The batch; C-contiguous. uint16 is for the bits of bfloat16 numbers. C is 3, or what `mode` says. No other
        argument may overlap it.
    rows : ndarray, shape (n,), int64
        Image ``i`` goes to ``out[rows[i]]``. Rows must be distinct.
    layout : {"HWC", "CHW"}
        The order of the axes.
    filter : {"box", "bilinear", "bicubic", "lanczos"}
        Antialiased, as Pillow's `Image.resize` of the cropped region: at most one different per value, for bicubic
        and lanczos equal. A region that keeps its size keeps its pixels.
    scale, offset : sequence of C float, optional
        For float batches: ``value * scale[c] + offset[c]`` in float32 (two roundings), then rounded to float16 or
        bfloat16 if that is the type. None for uint8 batches.
    max_pixels, max_nbytes : int
        As for `decode`, for each image.
    orientations : ndarray, shape (n,), uint8, optional
        The Exif orientation of each image, 1 to 8, to apply. The region remains one of the stored image; size, window
        and flips are those of the oriented one. Rows equal those of the oriented image, decoded first. None: all
        are 1.
    beside : sequence of three int, optional
        Colour, 0 to 255, of the window outside the resized region, with three channels. The window must show a part of
        the region.
    quality : float, optional
        Decode each image at the smallest scale (1/1, 1/2, 1/4, 1/8) at which its region still has ``quality``
        samples for each pixel of the size, in both directions; at least 1. The result is that of the full-size
        picture with every pixel replaced by the sample that covers it. None: always at full size.
    late_color : bool
        Resize luma and chroma of JPEGs, each from its own samples, and convert the result to RGB: where the mode is
        "RGB" or "BGR", no weight of the filter is negative, and the resize makes the region smaller.
    indices : sequence of (buffer or None), optional
        The index of each image, from `build_index` or from `found`. Rows do not depend on it, even if it is wrong. If
        the sequence has attributes `fd`, `entries`, `numbers` (see `read_tables`) and `errors`, a list, indices are
        read from the file without an object for each; if that fails, they are None, and the error is appended.
    learn : {"rows", "tiles"}, optional
        Record the places that decoding passes, in the given index or in a new one of this kind.
    found : list, optional
        A list that receives reports on indices. Required with `indices` and `learn`. ``(i, damaged, learned)`` is
        appended for each image with something to report: whether the index was damaged or another image's (bool),
        and the index that replaces it (bytes, or None if nothing was recorded).
    threads : int
        Threads that work on one image together, the calling thread included, if a million pixels or more of it are
        decoded: all of them with an index (or restart markers at every row), otherwise two. Fewer if the system
        starts no more. Rows do not depend on it.
    mode : {"RGB", "BGR", "L", "RGBA"}
        The channels of the decoded pixels, before they are resized: as for `decode`.

    Returns
    -------
    failures : list of (int, str, str)
        ``i``, "unsupported" | "corrupt" | "too_large" | "out_of_memory" | "truncated", and a message. These rows are
        unchanged. A truncated JPEG is refused also if the part that is used is whole.
    decode_ns, resize_ns : int
        Time for decoding, and for resizing and writing.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments. Nothing was written, except if a region does not lie inside its image (the message names
        ``i``): then other rows may have been written.
    """

def fill_arrays(
    images: SupportsGetItem[int, NDArray[Any]],
    dtype: str,
    out: NDArray[uint8 | uint16 | float16 | float32],
    rows: NDArray[int64],
    *,
    layout: str,
    filter: str,
    geometry: NDArray[int32] | None = None,
    scale: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None,
    offset: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None,
    mean: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None,
    std: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None,
    beside: SupportsLenAndGetItem[SupportsIndex] | None = None,
    pad: bool = False,
) -> None:
    """
    Fills rows of a batch from arrays of pixels, which may differ in size. See `fill_stored`.

    Parameters
    ----------
    images : sequence of ndarray, shape (height, width, channels)
        C-contiguous, of one type and number of channels.
    dtype, out, rows, layout, filter, geometry, scale, offset, mean, std, beside, pad
        As for `fill_stored`.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments. Nothing was written.
    """

def fill_parts(
    images: Sequence[Buffer],
    geometry: NDArray[int32],
    out: NDArray[uint8],
    parts: NDArray[int32],
    *,
    filter: str,
    max_pixels: SupportsIndex = 134217728,
    max_nbytes: SupportsIndex = 1342177280,
    quality: SupportsFloat | SupportsIndex | None = None,
    late_color: bool = False,
) -> tuple[list[tuple[int, str, str]], int, int]:
    """
    Fills parts of a picture from encoded images: decode, crop, resize.

    Parameters
    ----------
    images : sequence of buffer
        ``n`` encoded images.
    geometry : ndarray, shape (n, 9), int32
        As for `fill`; the window is the part.
    out : ndarray, shape (H, W, 3), uint8
        The picture; C-contiguous. No other argument may overlap it.
    parts : ndarray, shape (n, 4), int32
        x0, y0, x1, y1 of each part, inside the picture; x1 and y1 are outside the part. Later images are written over
        earlier ones.
    filter : {"box", "bilinear", "bicubic", "lanczos"}
        As for `fill`.
    max_pixels, max_nbytes, quality, late_color
        As for `fill`.

    Returns
    -------
    failures : list of (int, str, str)
        As those of `fill`. These parts are unchanged.
    decode_ns, resize_ns : int
        Time for decoding, and for resizing and writing.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments. Nothing was written, except if a region does not lie inside its image (the message names
        ``i``): then other parts may have been written.
    """

def fill_pixels(
    image: NDArray[uint8],
    geometry: NDArray[int32],
    out: NDArray[uint8 | uint16 | float16 | float32],
    row: SupportsIndex,
    *,
    layout: str,
    filter: str,
    scale: SupportsLenAndGetItem[SupportsFloat | SupportsIndex] | None = None,
    offset: SupportsLenAndGetItem[SupportsFloat | SupportsIndex] | None = None,
    orientation: SupportsIndex = 1,
    beside: SupportsLenAndGetItem[SupportsIndex] | None = None,
) -> None:
    """
    Fills a row of a batch from an image that is already decoded. See `fill`.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3), uint8
        RGB; C-contiguous.
    geometry : ndarray, shape (9,), int32
        A row of the geometry of `fill`.
    out, layout, filter, scale, offset, beside
        As for `fill`.
    row : int
        The row of `out` to fill.
    orientation : int
        As one of `fill`'s.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments. Nothing was written.
    """

def fill_samples(
    images: Sequence[Buffer],
    geometry: NDArray[int32],
    out: NDArray[uint8 | uint16 | float16 | float32],
    rows: NDArray[int64],
    *,
    layout: str,
    filter: str,
    affine: SupportsLenAndGetItem[SupportsFloat | SupportsIndex] | None = None,
    max_pixels: SupportsIndex = 134217728,
    max_nbytes: SupportsIndex = 1342177280,
) -> tuple[list[tuple[int, str, str]], int, int]:
    """
    Fills rows of a batch from gray PNGs of 16 bits: decode, crop, resize, flip, normalise, with all bits.

    Parameters
    ----------
    images : sequence of buffer
        ``n`` encoded images.
    geometry : ndarray, shape (n, 9), int32
        As for `fill`. The window lies inside the size.
    out : ndarray, shape (N, H, W, 1) or (N, 1, H, W), uint16, float16 or float32
        The batch; C-contiguous. With `affine`, uint16 is for the bits of bfloat16 numbers. No other argument may
        overlap it.
    rows : ndarray, shape (n,), int64
        As for `fill`.
    layout : {"HWC", "CHW"}
        The order of the axes.
    filter : {"box", "bilinear", "bicubic", "lanczos"}
        As for `resize_samples`.
    affine : tuple of two float, optional
        For float batches: a factor and a summand, as `scale` and `offset` of `fill`. None for uint16 batches.
    max_pixels, max_nbytes : int
        As for `decode`, for each image.

    Returns
    -------
    failures, decode_ns, resize_ns
        As from `fill`. Images that are no gray PNGs of 16 bits are "unsupported".

    Raises
    ------
    TypeError, ValueError
        As from `fill`.
    """

def fill_stored(
    buffer: Buffer,
    offsets: NDArray[int64],
    shape: SupportsLenAndGetItem[SupportsIndex],
    dtype: str,
    out: NDArray[uint8 | uint16 | float16 | float32],
    rows: NDArray[int64],
    *,
    layout: str,
    filter: str,
    geometry: NDArray[int32] | None = None,
    scale: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None,
    offset: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None,
    mean: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None,
    std: SupportsGetItem[int, SupportsFloat | SupportsIndex] | None = None,
    beside: SupportsLenAndGetItem[SupportsIndex] | None = None,
    pad: bool = False,
) -> None:
    """
    Fills rows of a batch from images that are stored as their pixels, at places of one buffer. See `fill`.

    Parameters
    ----------
    buffer : buffer
        Bytes, such as a memory map.
    offsets : ndarray, shape (n,), int64
        Where each image begins. Values are little-endian and need no alignment.
    shape : tuple of three int
        Height, width and channels of every image.
    dtype : {"uint8", "uint16", "float32"}
        The type of the values.
    out : ndarray, shape (N, H, W, C) or (N, C, H, W), uint8, uint16, float16 or float32
        The batch; C-contiguous.
    rows, layout, filter, beside
        As for `fill`.
    geometry : ndarray, shape (n, 9), int32, optional
        As for `fill`; without it, images have the size of the rows. Only uint8 images of 1 or 3 channels are resized.
    scale, offset : sequence of float, optional
        One number for each channel: ``value * scale[c] + offset[c]`` in float32 (two roundings).
    mean, std : sequence of float, optional
        Instead of these: ``(value - mean[c]) / std[c]`` in float32. Without any, values are kept; float32 values may
        then be rounded to float16, or to bfloat16 if the batch is of uint16. Any batch of uint16 has the bits of
        bfloat16 numbers, unless uint16 values are kept.
    pad : bool
        Whether regions have the size of the rows, and may leave the image: there, values are 0 before they are
        converted.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments. Nothing was written.
    """

def find_blobs(
    mapped: Buffer,
    begins: NDArray[int64],
    sizes: NDArray[int64],
    numbers: NDArray[int64],
    *,
    blobs: SupportsIndex,
    part: SupportsIndex,
    check: bool,
    file: tuple[str | PathLike[str], tuple[SupportsIndex, SupportsIndex, SupportsIndex, SupportsIndex]] | None,
) -> tuple[NDArray[int64], NDArray[int32], bool]:
    """
    Finds a blob of each of several records of a mapped pack, and compares checksums.

    Parameters
    ----------
    mapped : buffer
        The map of the pack's file.
    begins, sizes : ndarray, shape (m,), int64
        Where the value of each record of the pack lies in it; 0 where that is unknown.
    numbers : ndarray, shape (n,), int64
        The numbers of the records to find.
    blobs : int
        Blobs of a record.
    part : int
        Which blob: 1 to ``blobs``. 0 are the small fields.
    check : bool
        Whether to compare the checksums of the blobs.
    file : (path, (int, int, int, int)), optional
        Where the mapped file was; its device, inode, size and time of the last change, in nanoseconds. None: it is not
        looked at.

    Returns
    -------
    places : ndarray, shape (n, 2), int64
        Where each blob begins and ends in ``mapped``; -1 for what is damaged, unknown or outside of the pack, and for
        all if another file is at the path now. A new array.
    sizes : ndarray, shape (n, 2), int32
        Of blobs that are images: as `sizes`. A new array.
    complete : bool
        Whether each blob was found.

    Raises
    ------
    ValueError
        If the arrays differ in length.
    """

def gather(buffer: Buffer, offsets: NDArray[int64], out: NDArray[Any], rows: NDArray[int64]) -> None:
    """
    Copies values from places in a buffer to rows of an array.

    Parameters
    ----------
    buffer : buffer
        Bytes.
    offsets : ndarray, shape (n,), int64
        Where each value begins.
    out : ndarray
        Plain numbers, rows along the first axis; writable and C-contiguous. A value has the bytes of a row.
    rows : ndarray, shape (n,), int64
        Value ``i`` goes to ``out[rows[i]]``.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments, such as a value that is not inside the buffer. Nothing was written.
    """

def hash_pages(content: Buffer, page_nbytes: SupportsIndex) -> NDArray[uint64]:
    """
    Hashes the pages of some bytes with xxh3_64.

    Parameters
    ----------
    content : buffer
        Contiguous bytes. The last page may be shorter than the others.
    page_nbytes : int
        Bytes of a page, at least 1.

    Returns
    -------
    ndarray, shape (ceil(len(content) / page_nbytes),), uint64
        A new array.

    Raises
    ------
    TypeError
        ``content`` is not contiguous bytes in one dimension.
    ValueError
        ``page_nbytes`` is 0.
    """

def inspect(image: Buffer) -> dict[str, Any]:
    """
    Returns facts from the header of a JPEG.

    Parameters
    ----------
    image : buffer
        The encoded image.

    Returns
    -------
    dict
        ``width``, ``height``, ``components``, ``precision`` (bits), ``sampling`` ("4:2:0" ...), ``color`` ("gray" |
        "ycbcr" | "rgb" | "other"), ``process`` ("sequential" | "progressive" ...), ``progressive`` (bool),
        ``restart_interval`` (MCUs; 0: none), ``native`` (bool: whether the native decoder supports it, judged by
        its first header only), ``reason`` (str: why not; None if it does).

    Raises
    ------
    UnsupportedError, CorruptError
        The markers up to the first scan are damaged or unknown.
    """

def inspect_index(image: Buffer, index: Buffer) -> tuple[str, int, int] | None:
    """
    Describes an index.

    Parameters
    ----------
    image : buffer
        The encoded image.
    index : buffer
        Its index.

    Returns
    -------
    tuple of (str, int, int), or None
        Its kind, the number of places that it holds, and the number of places in the image (an index that is still
        being learned holds fewer). None: it is damaged or belongs to another image.
    """

def jpeg_from_coefficients(
    record: Buffer, max_pixels: SupportsIndex = 134217728, max_nbytes: SupportsIndex = 1342177280
) -> bytes:
    """
    Returns the JPEG of a record of coefficients.

    Parameters
    ----------
    record : buffer
        What `coefficients_from_jpeg` returned.
    max_pixels, max_nbytes : int
        As for `decode`.

    Returns
    -------
    bytes
        The JPEG that the record was made of, compared with its checksum.

    Raises
    ------
    CorruptError, TooLargeError, MemoryError
        As for `decode`. Also if `record` is not a record of coefficients.
    """

def level_override(name: str | None) -> None:
    """
    Sets the level of the kernels for calls that begin from now on, in any thread: for tests and measurements.

    Parameters
    ----------
    name : {"scalar", "avx2", "avx512", "neon"} or None
        The level. None: the processor's best. The pixels are the same at every level.

    Raises
    ------
    ValueError
        This processor has no level of that name.
    """

def mix(
    images: NDArray[float32],
    share: SupportsFloat | SupportsIndex,
    rest: SupportsFloat | SupportsIndex,
    out: NDArray[float32],
) -> None:
    """
    Mixes each row of a batch with the one before it, and the first with the last: ``before * rest + own * share``.

    Parameters
    ----------
    images : ndarray, shape (n, ...), float32
        C-contiguous.
    share, rest : float
        Factors, rounded to float32.
    out : ndarray, float32
        As many elements as ``images``; writable and C-contiguous. It must not overlap ``images``.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments. Nothing was written.
    """

def orientations(images: Sequence[Buffer]) -> NDArray[uint8]:
    """
    Returns the Exif orientation of images.

    Parameters
    ----------
    images : sequence of buffer
        Encoded images.

    Returns
    -------
    ndarray, shape (n,), uint8
        The value of the tag, 1 to 8; 1 for a JPEG, PNG or WebP without it. 0 for images that Pillow must look at: of
        another format, with an Exif segment that is damaged or unusual, or with none but XMP.
    """

def read_ahead(mapped: Buffer, begins: NDArray[int64], sizes: NDArray[int64], *, most_nbytes: SupportsIndex) -> int:
    """
    Has the system read ranges of a mapped file that are not in its page cache. Does not wait for the disk.

    Parameters
    ----------
    mapped : buffer
        The map of a file, from its first byte.
    begins, sizes : ndarray, shape (n,), int64
        The ranges, in bytes. What lies outside of the map is left out.
    most_nbytes : int
        Bytes to ask for at most. The first ranges count.

    Returns
    -------
    int
        The bytes that were asked for: 0 if the ranges are in the page cache. It is only a hint, and errors
        are ignored.

    Raises
    ------
    ValueError
        If ``begins`` and ``sizes`` differ in length.
    """

def read_tables(fd: SupportsIndex, entries: NDArray[uint8], numbers: NDArray[int64]) -> list[bytes | None]:
    """
    Reads seek tables of several records from a file of them.

    Parameters
    ----------
    fd : int
        The descriptor of the file, which stays open during the call.
    entries : ndarray, shape (m, 16), uint8
        The file's directory: offset, length and checksum of each table.
    numbers : ndarray, shape (n,), int64
        The numbers of the records.

    Returns
    -------
    list of (bytes or None)
        None for a record without a table, or with a damaged one.

    Raises
    ------
    OSError
        The system cannot read the file.
    ValueError
        If a number is outside of the directory.
    """

def resize(
    image: NDArray[uint8],
    width: SupportsIndex,
    height: SupportsIndex,
    filter: str,
    region: tuple[SupportsIndex, SupportsIndex, SupportsIndex, SupportsIndex] | None = None,
) -> NDArray[uint8]:
    """
    Resizes an image, antialiased, as Pillow's `Image.resize` of the cropped region does.

    Parameters
    ----------
    image : ndarray, shape (height, width, channels), uint8
        1 or 3 channels; C-contiguous.
    width, height : int
        The new size in pixels.
    filter : {"box", "bilinear", "bicubic", "lanczos"}
        At most one different from Pillow's result per value; bicubic and lanczos are equal.
    region : tuple of four int, optional
        x0, y0, x1, y1: resize only this part of the image.

    Returns
    -------
    ndarray, shape (height, width, channels), uint8
        A new array.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments.
    """

def resize_samples(
    samples: NDArray[uint16], width: SupportsIndex, height: SupportsIndex, filter: str
) -> NDArray[uint16]:
    """
    Resizes one channel of 16 bits, antialiased, as Pillow's `Image.resize` does with floats, and rounds.

    Parameters
    ----------
    samples : ndarray, shape (height, width), uint16
        C-contiguous.
    width, height : int
        The new size in pixels.
    filter : {"box", "bilinear", "bicubic", "lanczos"}
        As Pillow's.

    Returns
    -------
    ndarray, shape (height, width), uint16
        A new array.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments.
    MemoryError
        The system has no more memory.
    """

def resized_crop_windows(
    seed: int,
    epoch: int,
    indices: NDArray[int64],
    stream: SupportsIndex,
    sizes: NDArray[int32],
    *,
    scale: SupportsLenAndGetItem[SupportsFloat | SupportsIndex],
    ratio: SupportsLenAndGetItem[SupportsFloat | SupportsIndex],
    log_ratio: SupportsLenAndGetItem[SupportsFloat | SupportsIndex],
) -> NDArray[int32]:
    """
    Draws the windows of RandomResizedCrop for each sample of a chunk.

    Parameters
    ----------
    seed, epoch, indices, stream
        As for `uniforms`.
    sizes : ndarray, shape (n, 2), int32
        Width and height of each image, at least 1.
    scale, ratio, log_ratio : (float, float)
        The share of the image's area: the least, and the greatest minus it. The least width / height, and the greatest.
        The logarithm of the least, and that of the greatest minus it.

    Returns
    -------
    ndarray, shape (n, 4), int32
        Left, top, width, height of each window; inside its image. A new array.

    Raises
    ------
    ValueError
        Invalid arguments.
    """

def sharpen(image: NDArray[uint8], factor: SupportsFloat | SupportsIndex) -> NDArray[uint8]:
    """
    Sharpens or smooths an image, as `PIL.ImageEnhance.Sharpness` does, bit for bit.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), uint8
        C-contiguous.
    factor : float
        0: smooth. 1: unchanged. Above 1: sharper. Must be finite.

    Returns
    -------
    ndarray, uint8
        A new array of the image's shape.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments.
    """

def shift_hsv(
    image: NDArray[uint8],
    turns: SupportsFloat | SupportsIndex,
    saturation: SupportsFloat | SupportsIndex,
    value: SupportsFloat | SupportsIndex,
) -> NDArray[uint8]:
    """
    Changes hue, saturation and value of an image, in single precision and with one rounding.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), uint8
        C-contiguous.
    turns : float
        Turns of the colour circle that are added to the hue.
    saturation, value : float
        Factors; negative ones count as 0.

    Returns
    -------
    ndarray, uint8
        A new array of the image's shape. It equals the specification of `penstock.transforms.RandomHSV`, bit for bit.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments.
    """

def sizes(images: Sequence[Buffer]) -> NDArray[int32]:
    """
    Returns the width and height of images that the native decoders support.

    Parameters
    ----------
    images : sequence of buffer
        Encoded images.

    Returns
    -------
    ndarray, shape (n, 2), int32
        Width and height in pixels. (0, 0) for images that Pillow must decode (another format, CMYK, 12 bits, a damaged
        header ...).
    """

def transcode_baseline(
    image: Buffer, max_pixels: SupportsIndex = 134217728, max_nbytes: SupportsIndex = 1342177280
) -> bytes:
    """
    Rewrites a JPEG of several scans, progressive or not, as a baseline JPEG of one scan, without loss.

    Parameters
    ----------
    image : buffer
        The encoded image.
    max_pixels, max_nbytes : int
        As for `decode`.

    Returns
    -------
    bytes
        A file with the same coefficients, therefore the same pixels, in one scan with optimised Huffman tables.
        Quantisation tables, comments and application segments (Exif, ICC profile, JFIF, Adobe) are those of
        `image`, and so is everything after its end marker. Restart markers are dropped.

    Raises
    ------
    UnsupportedError
        The image has one scan already, or `decode` does not support its kind, or its coefficients are too large for
        a baseline file, or it has segments that depend on their position (MPF; JFIF or Adobe between scans).
    CorruptError, TooLargeError, MemoryError
        As for `decode`.
    """

def uniforms(
    seed: int, epoch: int, indices: NDArray[int64], stream: SupportsIndex, count: SupportsIndex
) -> NDArray[float64]:
    """
    Draws uniform numbers in [0, 1) for each sample of a chunk, as `penstock.rng.uniforms` does, bit for bit.

    Parameters
    ----------
    seed, epoch : int
        The lower 64 and 32 bits are used.
    indices : ndarray, shape (n,), int64
        The indices of the samples.
    stream : int
        The number of the consumer, 0 to 65535.
    count : int
        Numbers per sample, at most 65536.

    Returns
    -------
    ndarray, shape (n, count), float64
        A new array.

    Raises
    ------
    ValueError
        Stream or count out of range.
    """

def warp(
    image: NDArray[uint8],
    matrix: SupportsGetItem[int, SupportsFloat | SupportsIndex],
    filter: str,
    fill: tuple[SupportsIndex, SupportsIndex, SupportsIndex],
) -> NDArray[uint8]:
    """
    Maps an image onto itself, as `PIL.Image.transform` does, bit for bit.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), uint8
        C-contiguous; fewer than 2**31 pixels.
    matrix : sequence of 6 or 8 float
        The map from the result to the image: an affine map row by row, or a projective map without its last number, 1.
    filter : {"nearest", "bilinear"}
        How the image is sampled.
    fill : tuple of three int
        0 to 255: the colour of pixels from outside the image. An image without channels uses the first number.

    Returns
    -------
    ndarray, uint8
        A new array of the image's shape.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments.
    """

def warp_window(
    image: NDArray[uint8],
    matrix: SupportsLenAndGetItem[SupportsFloat | SupportsIndex],
    size: tuple[SupportsIndex, SupportsIndex],
    fill: tuple[SupportsIndex, SupportsIndex, SupportsIndex],
    layout: str = "HWC",
    shift: tuple[SupportsFloat | SupportsIndex, SupportsFloat | SupportsIndex, SupportsFloat | SupportsIndex]
    | None = None,
) -> NDArray[uint8]:
    """
    Draws a window on an affinely mapped image, by bilinear sampling in single precision.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3), uint8
        C-contiguous; fewer than 2**32 bytes.
    matrix : sequence of 6 float
        The affine map from the window to the image, row by row.
    size : (int, int)
        Width and height of the window.
    fill : tuple of three int
        0 to 255: the colour of pixels from outside the image.
    layout : {"HWC", "CHW"}
        The order of the result's axes.
    shift : (float, float, float), optional
        Turns, saturation and value of `shift_hsv`, which is applied to the window.

    Returns
    -------
    ndarray, shape (size[1], size[0], 3) or (3, size[1], size[0]), uint8
        A new array.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments.
    """

def write_at(
    path: str | PathLike[str], identity: tuple[SupportsIndex, SupportsIndex], offset: SupportsIndex, content: Buffer
) -> None:
    """
    Writes bytes to a file that exists, without the GIL. The file is closed again.

    Parameters
    ----------
    path : path
        The file. A symbolic link is refused.
    identity : (int, int)
        Its device and inode.
    offset : int
        Where to write, in bytes.
    content : buffer
        Contiguous bytes.

    Raises
    ------
    OSError
        If the system refuses; with ``errno.ESTALE`` if another file is at the path.
    TypeError
        ``content`` is not contiguous bytes in one dimension.
    """

def write_packets(
    images: Sequence[Buffer],
    geometry: NDArray[int32],
    window: tuple[SupportsIndex, SupportsIndex],
    *,
    filter: str,
    max_pixels: SupportsIndex = 134217728,
    max_nbytes: SupportsIndex = 1342177280,
    orientations: NDArray[uint8] | None = None,
    beside: SupportsLenAndGetItem[SupportsIndex] | None = None,
    quality: SupportsFloat | SupportsIndex | None = None,
    indices: Sequence[Buffer | None] | None = None,
    learn: str | None = None,
    found: list[tuple[int, bool, bytes | None]] | None = None,
    mode: str = "RGB",
) -> tuple[NDArray[uint8], int, NDArray[int64], list[tuple[int, str, str]]]:
    """
    Collects what a device needs to make rows of a batch from JPEGs. Nothing is decoded.

    Parameters
    ----------
    images, geometry, filter, max_pixels, max_nbytes, orientations, beside, quality, indices, found, mode
        As for `fill`. Without an index that covers the region, a scan is read once to make one.
    window : tuple of int
        Width and height of the row.
    learn : {"rows", "tiles"}, optional
        The kind of the indices that are made and returned in `found`.

    Returns
    -------
    packets : ndarray, shape (m,), uint8
        The packets of all images, one after the other, each a multiple of 16 bytes, and space behind them.
    nbytes : int
        Bytes of all packets.
    lengths : ndarray, shape (n,), int64
        Bytes of each; 0 for images without one.
    failures : list of (int, str, str)
        As `fill`'s, of the images without a packet: "unsupported" where `fill` may succeed.

    Raises
    ------
    TypeError, ValueError
        Invalid arguments.
    """
