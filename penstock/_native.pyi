# Made by native/stubs.py from the native module; do not edit.
# ruff: noqa: A002  (`filter` is the word for it)
"""
Penstock's native core: JPEG decoding, resizing and filling batches, without the GIL.

Work is done on the calling thread, unless more are asked for. Images are HWC uint8 RGB; encoded images are bytes,
bytearray, memoryview or one-dimensional uint8 arrays. Every function may be called from any number of threads at
once; arrays must not be written to while a call reads them, and rows of a batch not by two calls at once.
"""

from collections.abc import Sequence
from typing import Any, Final, SupportsFloat, SupportsIndex

from _typeshed import SupportsGetItem, SupportsLenAndGetItem
from numpy import float16, float32, float64, int32, int64, uint8
from numpy.typing import NDArray
from typing_extensions import Buffer

__all__ = [
    "GEOMETRY_COLUMNS",
    "CorruptError",
    "TooLargeError",
    "UnsupportedError",
    "adjust",
    "blur",
    "blur_floats",
    "build_index",
    "concat",
    "decode",
    "features",
    "fill",
    "fill_pixels",
    "inspect",
    "inspect_index",
    "level_override",
    "mix",
    "resize",
    "sharpen",
    "sizes",
    "transcode_baseline",
    "uniforms",
    "warp",
]

class CorruptError(ValueError):
    """Bytes that break the JPEG format; the message says where."""

class TooLargeError(ValueError):
    """More pixels than `max_pixels`, or bytes of coefficients than `max_nbytes`; nothing was allocated."""

class UnsupportedError(ValueError):
    """An image that is left to Pillow: not a JPEG, CMYK, 12-bit, a progressive one that lacks scans ..."""

GEOMETRY_COLUMNS: Final[int]
"""
Columns of `fill`'s geometry.
"""

def adjust(
    image: NDArray[uint8], steps: SupportsGetItem[int, tuple[str, SupportsFloat | SupportsIndex]]
) -> NDArray[uint8]:
    """
    Changes an image's values, step by step.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), uint8
        C-contiguous.
    steps : sequence of (str, float)
        ``"brightness"``, ``"contrast"``, ``"saturation"`` (factors), ``"hue"`` (turns), ``"gray"``,
        ``"posterize"`` (bits), ``"solarize"`` (threshold), ``"invert"``, ``"auto_contrast"``, ``"equalize"``; those
        without a word in brackets take any number. One after another, as if each rounded a whole image.

    Returns
    -------
    ndarray, uint8
        A new array of the image's shape: what the functions of these names in `penstock.transforms` give, bit for bit.

    Raises
    ------
    TypeError, ValueError
        No such image, or no such step.
    """

def blur(image: NDArray[uint8], across: NDArray[float32], down: NDArray[float32]) -> NDArray[uint8]:
    """
    Blurs an image by two symmetric sets of weights.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), uint8
        C-contiguous. Mirrored at its borders, as ``numpy.pad(..., "reflect")``.
    across, down : ndarray, shape (odd,), float32
        Weights along a row and along a column; their first halves and their middles count.

    Returns
    -------
    ndarray, uint8
        A new array of the image's shape: `penstock.transforms.GaussianBlur`'s specification, bit for bit.

    Raises
    ------
    TypeError, ValueError
        Arguments that are not as above.
    """

def blur_floats(image: NDArray[float32], across: NDArray[float32], down: NDArray[float32]) -> NDArray[float32]:
    """
    The same as `blur` for a float image.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), float32
        C-contiguous.
    across, down : ndarray, shape (odd,), float32
        As `blur`'s.

    Returns
    -------
    ndarray, float32
        A new array of the image's shape.

    Raises
    ------
    TypeError, ValueError
        Arguments that are not as above.
    """

def build_index(image: Buffer, kind: str = "rows", max_pixels: SupportsIndex = 134217728) -> bytes:
    """
    Makes a JPEG's index: where decoding may begin inside it, so that what a crop does not need is not read.

    Parameters
    ----------
    image : buffer
        The encoded image, which stays as it is.
    kind : {"rows", "tiles"}
        Places to begin: every row of MCUs (about 0.24 % of the file's size), or about every 64 pixels of it (2 %).
    max_pixels : int
        Largest width times height that the header may declare.

    Returns
    -------
    bytes
        For `fill` and `decode`, with this very image. Bound to it by a check of 64 bits.

    Raises
    ------
    UnsupportedError, CorruptError, TooLargeError
        As `decode` of the whole image.
    ValueError
        Not a kind.
    """

def concat(parts: SupportsGetItem[int, NDArray[Any]], out: NDArray[Any]) -> None:
    """
    Copies arrays one after another: what stacking samples into a batch is. Large targets are written past the cache.

    Parameters
    ----------
    parts : sequence of ndarray
        C-contiguous, of any shapes; plain numbers (bool, integers, floats, complex) in native byte order; one axis or
        more.
    out : ndarray
        Plain numbers, as many bytes as all parts together; writable and C-contiguous. It overlaps none of them.

    Raises
    ------
    TypeError
        Objects, strings, records or another byte order; nothing was written.
    BufferError, ValueError
        Something else that is not as above; nothing was written.
    """

def decode(
    image: Buffer,
    region: tuple[SupportsIndex, SupportsIndex, SupportsIndex, SupportsIndex] | None = None,
    max_pixels: SupportsIndex = 134217728,
    scale: SupportsIndex = 1,
    *,
    max_nbytes: SupportsIndex = 1073741824,
    index: Buffer | None = None,
    learn: str | None = None,
    found: list[tuple[int, bool, bytes | None]] | None = None,
    threads: SupportsIndex = 1,
) -> NDArray[uint8]:
    """
    Decodes a JPEG, or a region of it.

    Parameters
    ----------
    image : buffer
        The encoded image.
    region : tuple of four int, optional
        x0, y0, x1, y1 in pixels, inside the image; the pixels equal those of the whole image, cropped. Rows below it
        are not decoded; of an image of several scans all are, above and beside it.
    max_pixels : int
        Largest width times height that the header may declare.
    max_nbytes : int
        Most bytes that the coefficients of the whole image may take, if it has several scans (progressive ones have):
        136 for each block of 8 x 8 samples, 6.4 a pixel in 4:4:4. The default is enough for `max_pixels`' default.
    scale : {1, 2, 4, 8}
        At 1/scale of the size, by libjpeg's scaled inverse DCT. Sizes are rounded up and the region is mapped outward:
        ``x0 // scale`` to ``ceil(x1 / scale)``.
    index, learn, found, threads
        As `fill`'s, for this one image, whose number is 0.

    Returns
    -------
    ndarray, shape (height, width, 3), uint8
        RGB, a new array; gray is three equal channels. Bit-exact with libjpeg-turbo's slow integer IDCT and fancy
        upsampling.

    Raises
    ------
    UnsupportedError
        Left to Pillow.
    CorruptError
        The bytes break the format.
    TooLargeError
        More than `max_pixels` or `max_nbytes`; nothing was allocated.
    MemoryError
        The system has no more memory.
    ValueError
        The region is not inside the image.
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
    out: NDArray[uint8 | float16 | float32],
    rows: NDArray[int64],
    *,
    layout: str,
    filter: str,
    scale: SupportsLenAndGetItem[SupportsFloat | SupportsIndex] | None = None,
    offset: SupportsLenAndGetItem[SupportsFloat | SupportsIndex] | None = None,
    max_pixels: SupportsIndex = 134217728,
    max_nbytes: SupportsIndex = 1073741824,
    beside: SupportsLenAndGetItem[SupportsIndex] | None = None,
    quality: SupportsFloat | SupportsIndex | None = None,
    indices: Sequence[Buffer | None] | None = None,
    learn: str | None = None,
    found: list[tuple[int, bool, bytes | None]] | None = None,
    threads: SupportsIndex = 1,
) -> tuple[list[tuple[int, str, str]], int, int]:
    """
    Fills rows of a batch from encoded images: decode, crop, resize, flip, normalise.

    Parameters
    ----------
    images : sequence of buffer
        ``n`` encoded images.
    geometry : ndarray, shape (n, 9), int32
        x0, y0, x1, y1 (the region of the image), width, height (what it is resized to), left, top (where the output's
        H x W window lies in that; inside it, unless `beside` is given), flip (bit 0: left and right, bit 1: top and
        bottom; applied last).
    out : ndarray, shape (N, H, W, 3) or (N, 3, H, W), uint8, float16 or float32
        The batch; C-contiguous. No other argument lies in its memory.
    rows : ndarray, shape (n,), int64
        Image ``i`` goes to ``out[rows[i]]``; no row twice.
    layout : {"HWC", "CHW"}
        Which of the two shapes.
    filter : {"box", "bilinear", "bicubic", "lanczos"}
        Antialiased, as Pillow's `Image.resize` of the cropped region, within one level (bicubic and lanczos:
        the same). A region that keeps its size keeps its pixels.
    scale, offset : sequence of three float, optional
        Float batches: ``level * scale[c] + offset[c]`` in float32 (two roundings), then rounded to float16 if that is
        the type. uint8 batches: None.
    max_pixels, max_nbytes : int
        As `decode`'s, for each image.
    beside : sequence of three int, optional
        Colour, 0 to 255, of what a window shows beside the resized region; it must show some of that.
    quality : float, optional
        Decode each image at the smallest scale (1/1, 1/2, 1/4, 1/8) at which its region still has ``quality`` samples
        across and down for each pixel of the size; at least 1. The result is that of the full-size picture with every
        pixel replaced by the sample that covers it. None: always in full.
    indices : sequence of (buffer or None), optional
        Each image's index, as `build_index` makes it or a call found it. Rows are the same without, and where an index
        is wrong.
    learn : {"rows", "tiles"}, optional
        Note the places that decoding comes by: in the given index, or in a new one of this kind.
    found : list, optional
        Where to tell of indices; needed with `indices` and `learn`. Appended: ``(i, damaged, learned)`` for each image
        of which there is something to tell: its index was found to be damaged or another image's (bool), and what
        takes its place from now on (bytes; None: nothing was learned).
    threads : int
        Threads that work on one image together, the calling one included, where a million pixels or more of it are
        decoded: all of them by an index (or restart markers at every row), else two. Fewer where the system starts no
        more. Rows are the same.

    Returns
    -------
    failures : list of (int, str, str)
        ``i``, "unsupported" | "corrupt" | "too_large" | "out_of_memory", and a message; these rows are untouched.
    decode_ns, resize_ns : int
        Time spent decoding, and resizing and writing.

    Raises
    ------
    TypeError, ValueError
        Arguments that do not fit together; nothing was written, except where a region turns out not to lie inside its
        image (the message names ``i``): then other rows may have been.
    """

def fill_pixels(
    image: NDArray[uint8],
    geometry: NDArray[int32],
    out: NDArray[uint8 | float16 | float32],
    row: SupportsIndex,
    *,
    layout: str,
    filter: str,
    scale: SupportsLenAndGetItem[SupportsFloat | SupportsIndex] | None = None,
    offset: SupportsLenAndGetItem[SupportsFloat | SupportsIndex] | None = None,
    beside: SupportsLenAndGetItem[SupportsIndex] | None = None,
) -> None:
    """
    The same as `fill` for one image that is already decoded.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3), uint8
        RGB; C-contiguous.
    geometry : ndarray, shape (9,), int32
        As a row of `fill`'s.
    out, layout, filter, scale, offset, beside
        As `fill`'s.
    row : int
        The row of `out` to be filled.

    Raises
    ------
    TypeError, ValueError
        Arguments that do not fit together; nothing was written.
    """

def inspect(image: Buffer) -> dict[str, Any]:
    """
    What a JPEG says about itself.

    Parameters
    ----------
    image : buffer
        The encoded image.

    Returns
    -------
    dict
        ``width``, ``height``, ``components``, ``precision`` (bits), ``sampling`` ("4:2:0" ...), ``color`` ("gray" |
        "ycbcr" | "rgb" | "other"), ``process`` ("sequential" | "progressive" ...), ``progressive`` (bool),
        ``restart_interval`` (MCUs; 0: none), ``native`` (bool: does the native decoder read it, by its header alone: of
        several scans, what lies between them is not looked at), ``reason`` (str: why not; None if it does).

    Raises
    ------
    UnsupportedError, CorruptError
        The markers cannot be followed to the first scan.
    """

def inspect_index(image: Buffer, index: Buffer) -> tuple[str, int, int] | None:
    """
    What an index says about itself.

    Parameters
    ----------
    image : buffer
        The encoded image.
    index : buffer
        Its index.

    Returns
    -------
    tuple of (str, int, int), or None
        Its kind, how many places to begin it knows, and how many there are (fewer are known of an index that is still
        being learned). None: damaged, or not of this image.
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
    Mixes each row of a batch with the one before it, the first with the last: ``before * rest + own * share``.

    Parameters
    ----------
    images : ndarray, shape (n, ...), float32
        C-contiguous.
    share, rest : float
        Factors, rounded to float32.
    out : ndarray, float32
        As many elements as ``images``; writable and C-contiguous. It does not overlap them.

    Raises
    ------
    TypeError, ValueError
        Something that is not as above; nothing was written.
    """

def resize(
    image: NDArray[uint8],
    width: SupportsIndex,
    height: SupportsIndex,
    filter: str,
    region: tuple[SupportsIndex, SupportsIndex, SupportsIndex, SupportsIndex] | None = None,
) -> NDArray[uint8]:
    """
    Resizes an image, antialiased, as Pillow's `Image.resize` of the cropped region.

    Parameters
    ----------
    image : ndarray, shape (height, width, channels), uint8
        1 or 3 channels; C-contiguous.
    width, height : int
        The new size in pixels.
    filter : {"box", "bilinear", "bicubic", "lanczos"}
        Within one level of Pillow's result; bicubic and lanczos: the same.
    region : tuple of four int, optional
        x0, y0, x1, y1: only this part of the image.

    Returns
    -------
    ndarray, shape (height, width, channels), uint8
        A new array.

    Raises
    ------
    TypeError, ValueError
        Arguments that do not fit together.
    """

def sharpen(image: NDArray[uint8], factor: SupportsFloat | SupportsIndex) -> NDArray[uint8]:
    """
    Sharpens or smooths an image: `PIL.ImageEnhance.Sharpness`, bit for bit.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), uint8
        C-contiguous.
    factor : float
        0: smooth; 1: as it is; above: sharper. Finite.

    Returns
    -------
    ndarray, uint8
        A new array of the image's shape.

    Raises
    ------
    TypeError, ValueError
        Arguments that are not as above.
    """

def sizes(images: Sequence[Buffer]) -> NDArray[int32]:
    """
    Width and height of JPEGs, as far as the native decoder reads them.

    Parameters
    ----------
    images : sequence of buffer
        Encoded images.

    Returns
    -------
    ndarray, shape (n, 2), int32
        Width and height in pixels; (0, 0) where the image must be asked of Pillow (not a JPEG, CMYK, 12-bit, a
        damaged header ...).
    """

def transcode_baseline(
    image: Buffer, max_pixels: SupportsIndex = 134217728, max_nbytes: SupportsIndex = 1073741824
) -> bytes:
    """
    Rewrites a JPEG of several scans, progressive or not, as a baseline one of one scan, without loss.

    Parameters
    ----------
    image : buffer
        The encoded image.
    max_pixels, max_nbytes : int
        As `decode`'s.

    Returns
    -------
    bytes
        A file with the same coefficients, hence the same pixels, in one scan with optimised Huffman tables.
        Quantisation tables, comments and application segments (Exif, ICC profile, JFIF, Adobe) are those of `image`,
        and so is what follows its end marker; restart markers are dropped.

    Raises
    ------
    UnsupportedError
        One scan already, or of a kind that `decode` leaves to Pillow; coefficients too large for a baseline file, or
        segments that depend on their place (MPF; JFIF or Adobe between scans).
    CorruptError, TooLargeError, MemoryError
        As `decode`.
    """

def uniforms(
    seed: int, epoch: int, indices: NDArray[int64], stream: SupportsIndex, count: SupportsIndex
) -> NDArray[float64]:
    """
    Uniform numbers in [0, 1) for each sample of a chunk: `penstock.rng.uniforms`, bit for bit.

    Parameters
    ----------
    seed, epoch : int
        The lower 64 and 32 bits count.
    indices : ndarray, shape (n,), int64
        The samples.
    stream : int
        Which consumer draws, 0..65535.
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
    Maps an image onto itself: `PIL.Image.transform`, bit for bit.

    Parameters
    ----------
    image : ndarray, shape (height, width, 3) or (height, width), uint8
        C-contiguous; fewer than 2**31 pixels.
    matrix : sequence of 6 or 8 float
        From the result to the image: an affine map row by row, or a projective one without its last number, 1.
    filter : {"nearest", "bilinear"}
        How the image is sampled.
    fill : tuple of three int
        0 to 255: what comes from outside the image; of an image without channels the first.

    Returns
    -------
    ndarray, uint8
        A new array of the image's shape.

    Raises
    ------
    TypeError, ValueError
        Arguments that are not as above.
    """
