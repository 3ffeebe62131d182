"""Keyed uniform numbers: the native ones are those of the specification."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native
from penstock.rng import uniforms
from penstock.sample import SampleKeys


@given(
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(-5, 2**33),
    indices=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    stream=st.integers(0, 65535),
    count=st.integers(0, 9),
)
def test_native_equals_specification(seed: int, epoch: int, indices: list[int], stream: int, count: int) -> None:
    """Every number equals `penstock.rng.uniforms`, bit for bit, for any key."""
    array = np.array(indices, np.int64)

    numbers = _native.uniforms(seed, epoch, array, stream, count)

    expected = uniforms(SampleKeys(seed=seed, epoch=epoch, indices=array), stream, count)
    assert numbers.dtype == np.float64
    assert numbers.tobytes() == expected.tobytes()
    assert numbers.shape == expected.shape


def test_longest_row_equals_specification() -> None:
    """The last block of the longest row equals the specification too."""
    array = np.array([7], np.int64)

    numbers = _native.uniforms(1, 2, array, 3, 65536)

    assert (numbers == uniforms(SampleKeys(seed=1, epoch=2, indices=array), 3, 65536)).all()


@pytest.mark.parametrize(("stream", "count"), [(-1, 1), (65536, 1), (0, -1), (0, 65537)])
def test_out_of_range_is_refused(stream: int, count: int) -> None:
    """A stream or count that the counter has no room for is refused."""
    with pytest.raises(ValueError, match=f"stream {stream} .* count {count}"):
        _native.uniforms(0, 0, np.arange(3), stream, count)
