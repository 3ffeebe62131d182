"""The native core draws the windows and flips of a chunk, and composes them: equal to the ops' own, to the bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock import _native
from penstock import transforms as T
from penstock.sample import SampleKeys
from penstock.transforms.base import Params, Sizes
from penstock.transforms.program.row_filling import draw_geometry, pack_steps

KNOWN: tuple[Sequence[T.Op], ...] = (
    (T.RandomResizedCrop(24), T.HorizontalFlip()),
    (T.RandomResizedCrop((20, 30), (0.3, 0.9), (0.5, 3.0)), T.VerticalFlip(0.2), T.HorizontalFlip(0.9)),
    (T.RandomResizedCrop(40), T.CenterCrop((20, 31)), T.HorizontalFlip(1.0), T.CenterCrop((9, 8))),
    (T.HorizontalFlip(), T.VerticalFlip(), T.CenterCrop((12, 17))),
    (T.CenterCrop(33), T.Resize((16, 20))),
    (T.Resize(40), T.CenterCrop(24)),
    (T.Resize(17), T.CenterCrop((17, 16)), T.VerticalFlip()),
)


def compiled(ops: Sequence[T.Op]) -> T.Program:
    """The program of a pipeline that decodes first."""
    return T.Pipeline([T.Decode(), *ops]).compile("image")


@pytest.mark.parametrize("ops", KNOWN, ids=str)
@given(
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 2**33),
    sizes=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=9),
)
def test_native_geometry_is_that_of_the_ops(
    ops: Sequence[T.Op], seed: int, epoch: int, sizes: list[tuple[int, int]]
) -> None:
    """For any key and size; where a window leaves an image, it gives none."""
    keys = SampleKeys(seed, epoch, np.arange(len(sizes)) * 7 - 3)
    shapes = np.array(sizes, np.int32)
    steps = pack_steps(list(enumerate(ops, 1)))
    assert steps is not None

    geometry = draw_geometry(steps, keys, shapes)

    expected = compiled(ops).plan(keys, shapes)
    if expected.general is not None:
        assert geometry is None
    else:
        assert geometry is not None
        np.testing.assert_array_equal(geometry, expected.geometry)


class Widest(T.RandomResizedCrop):
    """A crop that draws otherwise."""

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """The whole image."""
        windows: NDArray[np.int32] = np.concatenate([np.zeros_like(sizes), sizes], axis=1)
        return windows


@pytest.mark.parametrize("op", [Widest(24), T.RandomCrop(24), T.Resize(20, max_size=40), T.Letterbox(24)], ids=repr)
def test_other_ops_draw_for_themselves(op: T.Op) -> None:
    """Ops that the core does not know are called: a subclass of one that it knows may draw otherwise."""
    assert pack_steps([(1, T.HorizontalFlip()), (2, op)]) is None


def test_an_unknown_size_is_left_to_others() -> None:
    """An image whose size the native decoders do not read has no window yet."""
    steps = pack_steps([(1, T.RandomResizedCrop(24))])
    assert steps is not None

    assert draw_geometry(steps, SampleKeys(0, 0, np.arange(2)), np.array([[40, 30], [0, 0]], np.int32)) is None


@pytest.mark.parametrize(
    ("steps", "indices", "sizes"),
    [
        (np.full((1, 10), 5.0), np.arange(2), np.ones((2, 2), np.int32)),
        (np.zeros((1, 9)), np.arange(2), np.ones((2, 2), np.int32)),
        (np.zeros((1, 10)), np.arange(3), np.ones((2, 2), np.int32)),
        (np.zeros((1, 10)), np.arange(2), np.ones((2, 3), np.int32)),
    ],
    ids=["kind", "numbers", "indices", "sizes"],
)
def test_steps_and_arrays_are_checked(
    steps: NDArray[np.float64], indices: NDArray[np.int64], sizes: NDArray[np.int32]
) -> None:
    """Unknown kinds and wrong shapes are refused, with what is allowed."""
    with pytest.raises(ValueError, match=r"must have shapes \[k, 10\], \[n\] and \[n, 2\], got .* kind of a step"):
        _native.draw_geometry(steps, 0, 0, indices, sizes)
