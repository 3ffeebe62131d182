"""The native calls for stored pixels: what they refuse. What they write: tests/datasets/test_pixels.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import _native

BUFFER = bytes(range(200)) * 3
OFFSETS = np.array([0, 100], np.int64)
ROWS = np.array([1, 0], np.int64)
IDENTITY = np.tile(np.array([0, 0, 4, 5, 4, 5, 0, 0, 0], np.int32), (2, 1))
OUT = np.zeros((2, 5, 4, 3), np.uint8)


def fill(**changed: Any) -> None:
    """A valid call, with other arguments."""
    arguments: dict[str, Any] = {
        "buffer": BUFFER, "offsets": OFFSETS, "shape": (5, 4, 3), "dtype": "uint8", "out": np.zeros_like(OUT),
        "rows": ROWS, "layout": "HWC", "filter": "box", **changed,
    }  # fmt: skip
    _native.fill_stored(**arguments)


def geometry(**changed: int) -> Any:
    """The identity for two images, with other numbers for the second."""
    names = ["x0", "y0", "x1", "y1", "width", "height", "left", "top", "flip"]
    columns = IDENTITY.copy()
    for name, value in changed.items():
        columns[1, names.index(name)] = value
    return columns


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"offsets": np.array([0, 541])}, ValueError, "inside the buffer"),
    ({"offsets": np.array([0, -1])}, ValueError, "inside the buffer"),
    ({"offsets": np.array([0, 2**63 - 1])}, ValueError, "inside the buffer"),
    ({"offsets": np.array([0])}, ValueError, "rows of 1 images"),
    ({"shape": (0, 4, 3)}, ValueError, "at least one value"),
    ({"shape": (2**40, 2**40, 3)}, ValueError, "inside the buffer"),
    ({"shape": (4, 4, 3)}, ValueError, "must have the size of the rows"),
    ({"shape": (5, 4, 1)}, ValueError, "channels of the images"),
    ({"dtype": "int8"}, ValueError, "dtype must be one of"),
    ({"dtype": "uint16", "shape": (5, 4, 3)}, ValueError, "batch of integers has the type of the images"),
    ({"layout": "NHWC"}, ValueError, "layout must be one of"),
    ({"filter": "nearest"}, ValueError, "filter must be one of"),
    ({"rows": np.array([0, 0])}, ValueError, "distinct"),
    ({"rows": np.array([0, 2])}, ValueError, "rows must be in"),
    ({"rows": np.array([0, -1])}, ValueError, "rows must be in"),
    ({"out": np.zeros((2, 5, 4, 3))}, TypeError, "must be of type"),
    ({"out": np.zeros((2, 5, 4, 3), np.float32)}, ValueError, "needs scale and offset"),
    ({"scale": [1.0] * 3, "offset": [0.0] * 3}, ValueError, "batch of integers"),
    ({"out": np.zeros((2, 5, 4, 3), np.float32), "scale": [1.0], "offset": [0.0]}, ValueError, "3 finite numbers each"),
    ({"out": np.zeros((2, 5, 4, 3), np.float32), "scale": [1.0] * 3}, ValueError, "given together"),
    (
        {"out": np.zeros((2, 5, 4, 3), np.float32), "mean": [0.0, 0.0, np.nan], "std": [1.0] * 3},
        ValueError, "finite",
    ),
    ({"geometry": IDENTITY[:1]}, ValueError, r"geometry shape \[2, 9\]"),
    ({"geometry": geometry(x1=5)}, ValueError, r"geometry\[1\]: region must lie inside"),
    ({"geometry": geometry(x0=-1)}, ValueError, r"geometry\[1\]: region must satisfy"),
    ({"geometry": geometry(flip=4)}, ValueError, r"geometry\[1\]: flip"),
    ({"geometry": geometry(flip=4), "pad": True}, ValueError, r"geometry\[1\]: flip"),
    ({"geometry": geometry(x0=-1), "pad": True}, ValueError, "the size of the rows"),
    ({"geometry": geometry(x0=-(2**31), x1=2**31 - 1), "pad": True}, ValueError, "the size of the rows"),
    ({"geometry": geometry(left=1), "pad": True}, ValueError, "the size of the rows"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "error", "match"), REFUSED)
def test_arguments_that_do_not_fit_are_refused(changed: dict[str, Any], error: type[Exception], match: str) -> None:
    """Each wrong argument raises an error that says what was wrong, and writes nothing."""
    out = changed.get("out", np.zeros_like(OUT))

    with pytest.raises(error, match=match):
        fill(**{"out": out, **changed})

    assert not out.any()


def test_the_valid_call_is_valid() -> None:
    """The call that the refused ones differ from copies the images to their rows."""
    out = np.zeros_like(OUT)

    fill(out=out, geometry=IDENTITY)

    np.testing.assert_array_equal(out[1].ravel(), np.frombuffer(BUFFER, np.uint8)[:60])
    np.testing.assert_array_equal(out[0].ravel(), np.frombuffer(BUFFER, np.uint8)[100:160])


def test_values_that_only_bytes_can_be_resized_to_are_refused() -> None:
    """The core resizes uint8 of one or three channels."""
    for dtype, channels in (("uint16", 3), ("float32", 1), ("uint8", 2)):
        image = np.zeros((5, 4, channels), dtype)
        out = np.zeros((1, 3, 3, channels), dtype)
        columns = np.array([[0, 0, 4, 5, 3, 3, 0, 0, 0]], np.int32)

        with pytest.raises(ValueError, match="only images of 1 or 3 channels of uint8 are resized"):
            _native.fill_arrays(
                [image], dtype, out, np.zeros(1, np.int64), layout="HWC", filter="box", geometry=columns
            )


def test_arrays_of_another_type_or_number_of_channels_are_refused() -> None:
    """All images of a call are of one kind, and nothing that overlaps the batch."""
    good = np.ones((5, 4, 3), np.uint8)
    for wrong in (good[:, :, :1], good.astype(np.uint16), good.ravel(), np.ones((0, 4, 3), np.uint8), b"abc"):
        out = np.zeros_like(OUT)
        with pytest.raises((TypeError, ValueError)):
            _native.fill_arrays([good, np.ascontiguousarray(wrong)], "uint8", out, ROWS, layout="HWC", filter="box")
        assert not out.any()
    out = np.zeros_like(OUT)
    with pytest.raises(ValueError, match="overlap"):
        _native.fill_arrays([out[0], good], "uint8", out, ROWS, layout="HWC", filter="box")


def test_values_are_gathered_from_a_buffer() -> None:
    """Rows of any dtype, from places that need no alignment."""
    content = np.arange(60, dtype=np.uint8).tobytes()
    out = np.zeros((4, 3), np.uint16)

    _native.gather(content, np.array([1, 50], np.int64), out, np.array([3, 0], np.int64))

    np.testing.assert_array_equal(out[3], np.frombuffer(content, np.uint16, 3, 1))
    np.testing.assert_array_equal(out[0], np.frombuffer(content, np.uint16, 3, 50))
    assert not out[1:3].any()


@pytest.mark.parametrize(
    ("offsets", "rows"),
    [([55], [0]), ([-1], [0]), ([2**63 - 3], [0]), ([0], [4]), ([0], [-1]), ([0, 1], [0]), ([[0]], [[0]])],
)
def test_places_outside_are_not_gathered(offsets: list[Any], rows: list[Any]) -> None:
    """Nothing is read outside the buffer or written outside the array."""
    out = np.zeros((4, 3), np.uint16)

    with pytest.raises(ValueError, match="rows"):
        _native.gather(bytes(60), np.array(offsets), out, np.array(rows))

    assert not out.any()


def test_gathering_into_nothing_does_nothing() -> None:
    """No rows, or rows without bytes."""
    none = np.zeros(0, np.int64)
    _native.gather(b"abc", none, np.zeros((0, 4), np.uint8), none)
    _native.gather(b"abc", np.array([3]), np.zeros((2, 0), np.uint8), np.array([1]))
    with pytest.raises(BufferError):
        _native.gather(b"abc", none, np.zeros((), np.uint8), none)
