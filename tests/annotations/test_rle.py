"""Run-length encodings of masks are COCO's, pixel by pixel and character by character."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from penstock.annotations import rle
from penstock.errors import AnnotationError, ArgumentError
from penstock.run_lengths import format_counts, parse_counts
from penstock.sample import Array
from tests.effort import choose_tries

GOLDEN: Final = (
    # mask, and what pycocotools 2.0.11 writes for it
    ([[0, 0, 1], [0, 1, 1], [1, 1, 0]], "21130"),
    ([[0]], "1"),
    ([[1]], "01"),
    ([[1, 0], [0, 1]], "0120"),
    ([[1, 1], [1, 1]], "04"),
    ([[0, 1, 0, 1, 1, 0, 0, 1]], "11111O"),
    (np.indices((7, 40)).sum(axis=0) > 30, "e5151O1O1O1OP2"),
)
MASKS: Final = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=40))


def write_text(counts: list[int]) -> str:
    """The text of counts, number by number, as the format is documented."""
    text = ""
    for place, count in enumerate(counts):
        number = count - counts[place - 2] if place > 2 else count
        while True:
            bits, number = number & 31, number >> 5
            is_last = number == (-1 if bits & 16 else 0)
            text += chr(48 + bits + (0 if is_last else 32))
            if is_last:
                break
    return text


def count_runs(mask: Array) -> list[int]:
    """Lengths of the runs of a mask, pixel by pixel down the columns."""
    counts, held = [0], False
    for pixel in mask.T.ravel().tolist():
        if bool(pixel) != held:
            counts.append(0)
            held = not held
        counts[-1] += 1
    return counts


def make_text(mask: Any) -> str:
    """The text of a mask."""
    text: str = rle.encode(np.array(mask))["counts"]
    return text


@given(MASKS)
@example(np.zeros((3, 4), bool))
@example(np.ones((60, 70), bool))
def test_a_mask_is_encoded_as_documented_and_decoded_exactly(mask: Array) -> None:
    """The text is that of the documented rule, and every pixel comes back."""
    instance = rle.encode(mask)

    assert instance == {"size": list(mask.shape), "counts": write_text(count_runs(mask))}
    decoded = rle.decode(instance)
    assert decoded.dtype == np.uint8
    np.testing.assert_array_equal(decoded, mask)
    np.testing.assert_array_equal(rle.decode({**instance, "counts": instance["counts"].encode()}), mask)
    np.testing.assert_array_equal(rle.decode({**instance, "counts": count_runs(mask)}), mask)


@pytest.mark.parametrize(("mask", "text"), GOLDEN)
def test_golden_texts(mask: Any, text: str) -> None:
    """Texts that pycocotools wrote, kept here."""
    assert make_text(mask) == text


@given(MASKS)
def test_area_and_box_are_those_of_the_pixels(mask: Array) -> None:
    """The area is the number of pixels, the box ends where they end."""
    instance = rle.encode(mask)
    rows, columns = np.nonzero(mask)

    assert rle.area(instance) == mask.sum()
    edges = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) if len(rows) else (0, 0, 0, 0)
    assert rle.box(instance) == edges


@given(st.lists(MASKS, max_size=6))
def test_many_masks_at_once_are_as_one_by_one(masks: list[Array]) -> None:
    """Texts and lists of any number of masks are read together as alone."""
    texts = [make_text(mask) for mask in masks]
    given_counts = [
        text if row % 2 else count_runs(mask) for row, (text, mask) in enumerate(zip(texts, masks, strict=True))
    ]
    sizes = np.array([mask.size for mask in masks], np.int64)

    runs, wrong = parse_counts(given_counts, sizes)

    assert not wrong
    assert format_counts(runs) == texts
    assert runs.area().tolist() == [int(mask.sum()) for mask in masks]


@given(st.lists(st.integers(0, 2**31), max_size=20))
def test_counts_of_any_size_are_read_back(counts: list[int]) -> None:
    """Long runs need up to seven characters; the mask itself is not made."""
    total = sum(counts)
    runs, wrong = parse_counts([write_text(counts), counts], np.array([total, total]))

    assert not wrong
    assert runs.area().tolist() == [sum(counts[1::2])] * 2
    first, second = format_counts(runs)
    assert first == second


def test_runs_without_pixels_are_joined() -> None:
    """Counts of 0 in the middle are valid, and are written as the runs that they leave."""
    runs, wrong = parse_counts([[2, 0, 1, 3, 0, 1, 2]], np.array([9]))

    assert not wrong
    assert format_counts(runs) == [write_text([3, 4, 2])]


@pytest.mark.parametrize(
    "instance",
    [
        {},
        {"size": [2, 2]},
        {"counts": "4"},
        {"size": [2], "counts": "4"},
        {"size": [2, 2.0], "counts": "4"},
        {"size": [True, 2], "counts": "2"},
        {"size": [-2, -2], "counts": "4"},
        {"size": "22", "counts": "4"},
        {"size": [10**9, 10**9], "counts": [10**18]},
        {"size": [10**400, 10], "counts": "4"},
        {"size": [2, 2], "counts": None},
        {"size": [2, 2], "counts": 4},
        {"size": [2, 2], "counts": ""},
        {"size": [2, 2], "counts": "3"},
        {"size": [2, 2], "counts": "5"},
        {"size": [2, 2], "counts": "4 "},
        {"size": [2, 2], "counts": "4P"},
        {"size": [2, 2], "counts": "4\udc80"},
        {"size": [2, 2], "counts": "4é"},
        {"size": [2, 2], "counts": b"4\xff"},
        {"size": [2, 2], "counts": "o" * 100},
        {"size": [2, 2], "counts": "ooooooo0"},
        {"size": [2, 2], "counts": "O5"},
        {"size": [2, 2], "counts": [2, -1, 3]},
        {"size": [2, 2], "counts": [10**30]},
        {"size": [2, 2], "counts": [2**63 - 1, 2**63 - 1, 6]},
        {"size": [2, 2], "counts": [2.0, 2.0]},
        {"size": [2, 2], "counts": ["2", "2"]},
        {"size": [2, 2], "counts": [[4]]},
    ],
)
def test_what_is_no_encoding_is_refused(instance: dict[str, Any]) -> None:
    """Sizes and counts that do not fit are an error before any memory is taken for them."""
    for function in (rle.decode, rle.area, rle.box):
        with pytest.raises(AnnotationError, match=r"size|counts"):
            function(instance)


def test_a_mask_must_have_two_dimensions() -> None:
    """A batch of masks is no mask."""
    with pytest.raises(ArgumentError, match="height, width"):
        rle.encode(np.zeros((1, 2, 3)))


@given(st.binary(max_size=40) | st.text(max_size=40) | st.lists(st.integers(-5, 30) | st.none()))
def test_any_counts_are_read_or_refused(counts: Any) -> None:
    """Counts of any kind are the runs of a mask, or an AnnotationError."""
    try:
        mask = rle.decode({"size": [5, 6], "counts": counts})
    except AnnotationError:
        return
    assert mask.shape == (5, 6)
    assert set(np.unique(mask)) <= {0, 1}


@pytest.mark.tries
def test_pixels_are_those_of_pycocotools() -> None:
    """Text, mask, area and box of thousands of masks are pycocotools'."""
    reference = pytest.importorskip("pycocotools.mask")
    rng = np.random.default_rng(0)
    for _ in range(choose_tries(3000)):
        mask = rng.random(rng.integers(1, 40, 2)) < rng.choice([0.0, 0.02, 0.5, 0.98, 1.0])
        expected = reference.encode(np.asfortranarray(mask.astype(np.uint8)))
        x, y, width, height = reference.toBbox(expected).tolist()

        assert rle.encode(mask) == {"size": list(mask.shape), "counts": expected["counts"].decode()}
        np.testing.assert_array_equal(rle.decode(expected), mask)
        assert rle.area(expected) == reference.area(expected)
        assert rle.box(expected) == (x, y, x + width, y + height)
