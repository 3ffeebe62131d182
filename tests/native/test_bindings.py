"""The border: what is accepted, what is refused and how, and what the stub promises."""

from __future__ import annotations

import inspect
import io
import mmap
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from penstock import _native

Jpeg = Callable[..., bytes]

GEOMETRY = np.array([[0, 0, 32, 32, 16, 16, 0, 0, 0]], np.int32)
FUNCTIONS = [
    "write_packets",
    "sizes",
    "concat",
    "crc32c",
    "decode",
    "decode_damaged",
    "decode_samples",
    "decode_values",
    "draw_geometry",
    "example_features",
    "build_index",
    "inspect_index",
    "fill",
    "fill_pixels",
    "fill_parts",
    "fill_samples",
    "fill_stored",
    "fill_arrays",
    "find_blobs",
    "gather",
    "hash_pages",
    "read_ahead",
    "read_tables",
    "write_at",
    "resize",
    "resize_samples",
    "resized_crop_windows",
    "uniforms",
    "transcode_baseline",
    "coefficients_from_jpeg",
    "jpeg_from_coefficients",
    "inspect",
    "adjust",
    "blur",
    "blur_floats",
    "mix",
    "orientations",
    "sharpen",
    "shift_hsv",
    "warp",
    "warp_window",
    "features",
    "level_override",
]


def fill(image: bytes, **changed: Any) -> Any:
    """One valid call of `fill`, but for what is changed."""
    call: dict[str, Any] = {
        "images": [image],
        "geometry": GEOMETRY,
        "out": np.zeros((2, 16, 16, 3), np.float32),
        "rows": np.array([1]),
        "layout": "HWC",
        "filter": "bilinear",
        "scale": [1, 1, 1],
        "offset": [0, 0, 0],
    }
    call.update(changed)
    return _native.fill(call.pop("images"), call.pop("geometry"), call.pop("out"), call.pop("rows"), **call)


def geometry_with(**changed: int) -> Any:
    """The valid geometry, but for what is changed."""
    columns = dict(zip(["x0", "y0", "x1", "y1", "width", "height", "left", "top", "flip"], GEOMETRY[0], strict=True))
    return np.array([list({**columns, **changed}.values())], np.int32)


REFUSED = [
    ("a string for bytes", {"images": ["text"]}, TypeError, "image 0 must be bytes"),
    ("floats for bytes", {"images": [np.zeros(3)]}, TypeError, "image 0 must be bytes"),
    ("strided bytes", {"images": [np.zeros(9, np.uint8)[::2]]}, TypeError, "image 0 must be bytes"),
    ("no images", {"images": 3}, TypeError, "images"),
    ("more images than rows", {"images": [b"", b""]}, ValueError, "geometry of 2 images must have shape"),
    ("int64 geometry", {"geometry": GEOMETRY.astype(np.int64)}, TypeError, "must be of type int32"),
    ("big-endian geometry", {"geometry": GEOMETRY.astype(">i4")}, TypeError, "must be of type int32"),
    ("flat geometry", {"geometry": GEOMETRY[0]}, ValueError, "geometry of 1 images must have shape"),
    ("strided geometry", {"geometry": np.zeros((1, 18), np.int32)[:, ::2]}, ValueError, "ascontiguousarray"),
    ("negative corner", {"geometry": geometry_with(x0=-1)}, ValueError, r"geometry\[0\]: region"),
    ("empty region", {"geometry": geometry_with(y1=0)}, ValueError, r"geometry\[0\]: region"),
    (
        "no width",
        {"geometry": geometry_with(width=0)},
        ValueError,
        r"geometry\[0\]: size must be at least 1 x 1, got 0 x 16",
    ),
    (
        "window beyond the size",
        {"geometry": geometry_with(left=1)},
        ValueError,
        r"geometry\[0\]: window must lie inside",
    ),
    (
        "window before the size",
        {"geometry": geometry_with(top=-1)},
        ValueError,
        r"geometry\[0\]: window must lie inside",
    ),
    ("size too small", {"geometry": geometry_with(height=15)}, ValueError, r"geometry\[0\]: window"),
    ("unknown flip", {"geometry": geometry_with(flip=4)}, ValueError, r"geometry\[0\]: flip must be .* got 4"),
    (
        "far away region",
        {"geometry": geometry_with(x1=2**31 - 1)},
        ValueError,
        r"geometry\[0\]: region must lie inside the image",
    ),
    ("int32 rows", {"rows": np.array([1], np.int32)}, TypeError, "must be of type int64"),
    ("row beyond", {"rows": np.array([2])}, ValueError, r"row must be in \[0, 2\), the rows of out, got 2"),
    ("row before", {"rows": np.array([-1])}, ValueError, r"row must be in \[0, 2\), .* got -1"),
    (
        "float64 batch",
        {"out": np.zeros((2, 16, 16, 3))},
        TypeError,
        "must be of type uint8, uint16, float16 or float32",
    ),
    (
        "big-endian batch",
        {"out": np.zeros((2, 16, 16, 3), ">f4")},
        TypeError,
        "must be of type uint8, uint16, float16 or float32",
    ),
    ("strided batch", {"out": np.zeros((2, 16, 16, 6), np.float32)[..., ::2]}, ValueError, "must be C-contiguous"),
    ("three axes", {"out": np.zeros((16, 16, 3), np.float32)}, ValueError, "must have four axes"),
    ("other layout's shape", {"layout": "CHW"}, ValueError, "must have layout CHW with 3 channels"),
    ("no pixels", {"out": np.zeros((2, 0, 16, 3), np.float32)}, ValueError, "must have layout HWC with 3 channels"),
    ("unknown layout", {"layout": "hwc"}, ValueError, "layout must be one of HWC, CHW, got 'hwc'"),
    ("unknown filter", {"filter": "nearest"}, ValueError, "filter must be one of box, .* got 'nearest'"),
    ("floats unscaled", {"scale": None}, ValueError, "scale and offset must be given"),
    ("levels scaled", {"out": np.zeros((2, 16, 16, 3), np.uint8)}, ValueError, "scale and offset must be None"),
    ("two channels", {"offset": [0, 0]}, ValueError, "offset"),
    ("not a number", {"scale": [1, 1, float("nan")]}, ValueError, "must be finite"),
    ("beyond float32", {"offset": [1e39, 0, 0]}, ValueError, "must be finite"),
    ("negative cap", {"max_pixels": -1}, OverflowError, "max_pixels|negative"),
]


@pytest.mark.parametrize(("changed", "error", "match"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_arguments_that_do_not_fit_are_refused(
    jpeg: Jpeg, changed: dict[str, Any], error: type[Exception], match: str
) -> None:
    """Each wrong argument raises an error that says what was wrong, and writes nothing."""
    out = changed.get("out", np.zeros((2, 16, 16, 3), np.float32))

    with pytest.raises(error, match=match):
        fill(jpeg(32, 32), **{"out": out, **changed})

    assert not out.any()


def test_the_valid_call_is_valid(jpeg: Jpeg) -> None:
    """The call that the refused ones differ from fills its row."""
    out = np.zeros((2, 16, 16, 3), np.float32)

    failures, _, _ = fill(jpeg(32, 32), out=out)

    assert failures == []
    assert out[1].any()


def test_a_row_given_twice_is_refused(jpeg: Jpeg) -> None:
    """Two images cannot fill the same row."""
    with pytest.raises(ValueError, match="rows must be distinct, got row 1 twice"):
        fill(jpeg(32, 32), images=[jpeg(32, 32)] * 2, geometry=np.tile(GEOMETRY, (2, 1)), rows=np.array([1, 1]))


def test_a_read_only_batch_is_refused(jpeg: Jpeg) -> None:
    """A batch that must not be written is not."""
    out = np.zeros((2, 16, 16, 3), np.float32)
    out.flags.writeable = False

    with pytest.raises(ValueError, match="read-only"):
        fill(jpeg(32, 32), out=out)

    assert not out.any()


def test_no_images_is_a_call_too() -> None:
    """An empty chunk fills nothing."""
    failures, decode_ns, resize_ns = fill(b"", images=[], geometry=GEOMETRY[:0], rows=np.arange(0))

    assert (failures, decode_ns, resize_ns) == ([], 0, 0)


def test_every_kind_of_bytes_is_read(jpeg: Jpeg) -> None:
    """bytes, bytearray, memoryview, arrays and mapped files, writable or not, give the same pixels."""
    image = jpeg(40, 30)
    frozen = np.frombuffer(image, np.uint8)
    expected = _native.decode(image)

    with tempfile.TemporaryFile() as file:
        file.write(image)
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            kinds: list[Any] = [
                bytearray(image),
                memoryview(image),
                memoryview(image + b"..")[:-2],
                frozen,
                frozen.copy(),
                view,
            ]
            pixels = [_native.decode(kind) for kind in kinds]
            sizes = _native.sizes(kinds)
            del kinds

    assert all((p == expected).all() for p in pixels)
    assert sizes.tolist() == [[40, 30]] * 6


def test_a_generator_of_images_is_read(jpeg: Jpeg) -> None:
    """Any iterable of images will do, and an error inside it passes through."""

    def broken() -> Any:
        yield jpeg(8, 8)
        raise LookupError("gone")

    assert _native.sizes(jpeg(w, 9) for w in (8, 9)).tolist() == [[8, 9], [9, 9]]  # type: ignore[arg-type]  # not promised
    with pytest.raises(LookupError, match="gone"):
        _native.sizes(broken())


def test_decode_regions_equal_crops(jpeg: Jpeg) -> None:
    """A region's pixels are the whole image's."""
    image = jpeg(100, 80, subsampling=2)
    whole = _native.decode(image)

    region = _native.decode(image, (13, 7, 90, 61))

    assert (region == whole[7:61, 13:90]).all()
    assert whole.flags.c_contiguous
    assert region.flags.owndata


@pytest.mark.parametrize("region", [(0, 0, 101, 80), (-1, 0, 5, 5), (5, 5, 5, 6), (9, 0, 3, 5), (0, 0, 2**31 - 1, 1)])
def test_decode_refuses_regions_outside(jpeg: Jpeg, region: tuple[int, int, int, int]) -> None:
    """A region that is empty or leaves the image is refused."""
    with pytest.raises(ValueError, match="region"):
        _native.decode(jpeg(100, 80), region)


def test_errors_of_decode(jpeg: Jpeg) -> None:
    """Each reason for a refusal is its own kind of ValueError."""
    image = jpeg(64, 64)

    with pytest.raises(_native.UnsupportedError, match="components"):
        _native.decode(cmyk(64, 64))
    with pytest.raises(_native.CorruptError, match="near byte"):
        _native.decode(image[: len(image) // 2])
    with pytest.raises(_native.TooLargeError, match="64 x 64 pixels are more than the 4095 allowed"):
        _native.decode(image, max_pixels=4095)
    assert _native.decode(image, max_pixels=4096).shape == (64, 64, 3)
    for error in (_native.UnsupportedError, _native.CorruptError, _native.TooLargeError):
        assert issubclass(error, ValueError)
        assert error.__doc__
        assert error.__module__ == "penstock._native"


def cmyk(width: int, height: int) -> bytes:
    """A JPEG of four components."""
    file = io.BytesIO()
    Image.new("CMYK", (width, height)).save(file, "JPEG")
    return file.getvalue()


def test_sizes_leaves_the_rest_to_pillow(jpeg: Jpeg) -> None:
    """Sizes are told only of what the native decoder reads."""
    png, gif = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (5, 6)).save(png, "PNG")
    Image.new("RGB", (5, 6)).save(gif, "GIF")
    others = [png.getvalue(), gif.getvalue(), b""]
    images = [jpeg(31, 17), jpeg(31, 17, progressive=True), cmyk(31, 17), *others, jpeg(1, 2, gray=True)]

    sizes = _native.sizes(images)

    assert sizes.dtype == np.int32
    assert sizes.tolist() == [[31, 17], [31, 17], [0, 0], [5, 6], [0, 0], [0, 0], [1, 2]]
    assert _native.sizes([]).shape == (0, 2)


def test_inspect_tells_the_header(jpeg: Jpeg) -> None:
    """A header's facts have names, and a refusal its reason."""
    read = _native.inspect(jpeg(31, 17, subsampling=2))
    many = _native.inspect(jpeg(31, 17, progressive=True, gray=True))
    left = _native.inspect(cmyk(31, 17))

    assert (read["width"], read["height"], read["components"]) == (31, 17, 3)
    assert (read["sampling"], read["color"], read["progressive"]) == ("4:2:0", "ycbcr", False)
    assert (read["native"], read["reason"], read["restart_interval"]) == (True, None, 0)
    assert (many["sampling"], many["color"], many["progressive"], many["native"]) == ("gray", "gray", True, True)
    assert (left["color"], left["progressive"], left["native"]) == ("other", False, False)
    assert "components" in left["reason"]
    with pytest.raises(ValueError, match="JPEG"):
        _native.inspect(b"GIF89a")


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4), (0, 4, 3), (4, 0, 3), (1, 4, 4, 3)], ids=str)
def test_resize_refuses_other_shapes(shape: tuple[int, ...]) -> None:
    """Images are height, width and 1 or 3 channels."""
    with pytest.raises(ValueError, match=r"must have shape \(height, width, channels\)"):
        _native.resize(np.zeros(shape, np.uint8), 2, 2, "box")


@pytest.mark.parametrize(("width", "height"), [(0, 1), (1, 0), (-1, 1)])
def test_resize_refuses_empty_sizes(width: int, height: int) -> None:
    """A size is at least 1 x 1."""
    with pytest.raises(ValueError, match="size must be at least 1 x 1"):
        _native.resize(np.zeros((4, 4, 3), np.uint8), width, height, "box")


def test_pixels_are_checked_like_images() -> None:
    """`fill_pixels` refuses what `fill` refuses, and writes nothing."""
    pixels, out = np.ones((32, 32, 3), np.uint8), np.zeros((2, 16, 16, 3), np.uint8)
    outside = geometry_with(x1=33)[0]
    call: dict[str, Any] = {"layout": "HWC", "filter": "box"}

    with pytest.raises(ValueError, match="must lie inside the image of 32 x 32"):
        _native.fill_pixels(pixels, outside, out, 0, **call)
    with pytest.raises(ValueError, match=r"must have shape \[9\]"):
        _native.fill_pixels(pixels, GEOMETRY[0, :8].copy(), out, 0, **call)
    with pytest.raises(ValueError, match=r"row must be in \[0, "):
        _native.fill_pixels(pixels, GEOMETRY[0], out, 2, **call)
    with pytest.raises(ValueError, match=r"must have shape \(height, width, channels\)"):
        _native.fill_pixels(pixels[:, :, :1].copy(), GEOMETRY[0], out, 0, **call)
    assert not out.any()


def test_levels_have_names() -> None:
    """Only known levels can be set, and None brings the best one back."""
    best = _native.features()

    with pytest.raises(ValueError, match=r"name must be one of scalar, .*got 'sse9'"):
        _native.level_override("sse9")
    _native.level_override("scalar")
    scalar = _native.features()
    _native.level_override(None)

    assert scalar == []
    assert _native.features() == best


def test_a_level_has_the_instructions_of_those_below(level: str) -> None:
    """A named level runs no instructions but its own and those below it."""
    features = _native.features()

    assert ("avx2" in features) == (level in {"avx2", "avx512"})
    assert ("neon" in features) == (level == "neon")
    assert ("avx512vbmi" in features) == (level == "avx512")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_explain_themselves(name: str) -> None:
    """Every function has a signature and documentation at run time."""
    function = getattr(_native, name)

    assert inspect.signature(function) is not None
    assert "----" in function.__doc__


def test_the_module_is_what_is_listed() -> None:
    """Nothing is public but the functions, the errors and two numbers of columns."""
    public = {name for name in dir(_native) if not name.startswith("_")}

    others = {"CorruptError", "TooLargeError", "UnsupportedError", "GEOMETRY_COLUMNS", "STEP_NUMBERS"}
    assert public == {*FUNCTIONS, *others}
    assert GEOMETRY.shape[1] == _native.GEOMETRY_COLUMNS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_fill(jpeg: Jpeg) -> None:
    """The core keeps nothing that a fork would break."""
    image, out = jpeg(32, 32), np.zeros((2, 16, 16, 3), np.float32)
    fill(image, out=out)

    child = os.fork()
    if child == 0:
        again = np.zeros_like(out)
        fill(image, out=again)
        os._exit(0 if again.tobytes() == out.tobytes() else 1)

    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("nbytes", [0, 1, 100, 1 << 20])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.complex128, np.bool_])
def test_concat_copies_arrays_of_any_type(dtype: Any, nbytes: int) -> None:
    """Parts lie one after another, also where the target is large and does not begin at a multiple of anything."""
    count = nbytes // np.dtype(dtype).itemsize
    parts = [np.random.default_rng(i).integers(0, 2, count).astype(dtype) for i in range(9)]
    target = np.zeros(9 * count * np.dtype(dtype).itemsize + 8, np.uint8)[3:-5].view(np.uint8)

    _native.concat(parts, target)

    assert target.tobytes() == b"".join(part.tobytes() for part in parts)


def test_concat_refuses_what_does_not_fit() -> None:
    """Sizes, strides, overlaps and read-only targets; nothing is written."""
    part, out = np.arange(4, dtype=np.uint8), np.zeros(8, np.uint8)
    frozen = out.copy()
    frozen.flags.writeable = False

    for parts, target in (([part], out), ([part, part, part], out), ([part[::2], part], out), ([out], out)):
        with pytest.raises(ValueError, match=r"bytes|contiguous|overlap"):
            _native.concat(parts, target)
    with pytest.raises((ValueError, BufferError), match=r"read-only|writable"):
        _native.concat([part, part], frozen)

    assert not out.any()
