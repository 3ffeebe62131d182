"""Corners of boxes from every form and unit, and sizes of images by their headers."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock.stores.fields.box_corners import read_header, to_corners

SIDES = st.lists(st.tuples(*[st.integers(0, 1000)] * 4), max_size=5)


@given(rows=SIDES, dtype=st.sampled_from([np.float32, np.float64]), is_relative=st.booleans())
def test_all_forms_give_the_same_corners(
    rows: list[tuple[int, ...]], dtype: type[np.floating], is_relative: bool
) -> None:
    """Corners, their order, sizes and centres of the same box are the same box, in fractions or pixels."""
    corners = [(x, y, x + w, y + h) for x, y, w, h in rows]
    forms = {
        "xyxy": corners,
        "yxyx": [(y1, x1, y2, x2) for x1, y1, x2, y2 in corners],
        "xywh": rows,
        "cxcywh": [(x + w / 2, y + h / 2, w, h) for x, y, w, h in rows],
    }
    size = (256, 512)  # powers of two: fractions are exact
    for form, stored in forms.items():
        flipped = size[::-1] if form == "yxyx" else size
        boxes = np.array(stored, dtype).reshape(-1, 4) / (np.tile(flipped, 2) if is_relative else 1)

        found = to_corners(boxes.astype(dtype), form, size if is_relative else None)

        np.testing.assert_array_equal(found, np.array(corners, np.float32).reshape(-1, 4))
        assert found.dtype == np.float32
        assert found.flags.c_contiguous


def test_corners_are_a_view_where_they_are_stored_so() -> None:
    """Boxes xyxy float32 in pixels are not copied."""
    boxes = np.arange(8, dtype=np.float32).reshape(2, 4)

    assert to_corners(boxes) is boxes


@pytest.mark.parametrize("form", ["JPEG", "PNG", "BMP", "GIF"])
def test_the_size_is_that_of_the_header(form: str) -> None:
    """Width, then height, of an image in any format, from bytes or a view."""
    file = io.BytesIO()
    Image.new("RGB", (33, 17)).save(file, form)

    assert read_header(file.getvalue()).size == (33, 17)
    assert read_header(memoryview(file.getvalue())).size == (33, 17)


@given(content=st.binary(max_size=60))
def test_other_bytes_have_no_size(content: bytes) -> None:
    """Bytes that are no image are an error."""
    with pytest.raises(ValueError, match="the size of its image cannot be read"):
        read_header(b"x" + content)
