"""The end of a pipeline in one call: the rows that its ops give one after another."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from penstock import transforms as T
from penstock.errors import SampleError
from penstock.sample import SampleKeys
from penstock.transforms.base import ImageSpec, Params
from penstock.transforms.program.program import Closing
from tests.transforms.pictures import KEYS

NORMALIZE = T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)

ENDS: list[list[T.Op]] = [
    [],
    [NORMALIZE],
    [NORMALIZE, T.RandomErasing(0.8)],
    [NORMALIZE, T.RandomErasing(0.8, value=(0.1, -2.3, 0.7))],
    [NORMALIZE, T.RandomErasing(0.8, value="random")],
    [NORMALIZE, T.RandomErasing(0.9, value=0.37), T.RandomErasing(0.9, value=-0.2)],
    [T.RandomErasing(0.8, value=(1, 200, 9))],
    [T.RandomErasing(0.8, value="random"), NORMALIZE],
]


class Specified(T.Op):
    """An op as its specification has it: no kernel, no fusing."""

    def __init__(self, op: T.Op) -> None:
        self.op = op

    def draw(self, keys: SampleKeys, sizes: Any, stream: int) -> Params:
        """The op's own."""
        return self.op.draw(keys, sizes, stream)

    def spec(self, spec: ImageSpec) -> ImageSpec | None:
        """The op's own."""
        return self.op.spec(spec)

    def image(self, image: Any, params: Params) -> Any:
        """The op's own."""
        return self.op.image(image, params)


def files(count: int) -> list[bytes]:
    """JPEGs and PNGs of several sizes."""
    made = []
    for seed in range(count):
        small = np.random.default_rng(seed).integers(0, 256, (8, 9, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(small).resize((60 + seed, 50)).save(file, "JPEG" if seed % 3 else "PNG")
        made.append(file.getvalue())
    return made


def filled(ops: Sequence[T.Op], images: list[Any], size: int) -> Any:
    """All rows of a batch, by the compiled pipeline."""
    program = T.Pipeline(ops).compile("image")
    spec = program.spec()
    assert spec is not None
    out = np.empty((len(images), *spec.shape), spec.dtype)
    program.fill(images, out, KEYS[:size])
    return out


@pytest.mark.parametrize(
    ("end", "dtype"),
    [
        (end, dtype)
        for end in ENDS
        for dtype in ("float32", "float16", "bfloat16", "uint8")
        if dtype != "uint8" or NORMALIZE not in end
    ],
    ids=repr,
)
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("middle", [[], [T.TrivialAugmentWide()], [T.Grayscale()]], ids=repr)
def test_rows_are_what_the_ops_give(middle: list[T.Op], end: list[T.Op], layout: str, dtype: str) -> None:
    """Behind ops that fuse and ops that do not, each row has the bits of the ops' specifications, one by one."""
    crop: list[T.Op] = [T.Decode(), T.RandomResizedCrop(24), T.HorizontalFlip()]
    rest = [*middle, *end, T.ToLayout(layout, dtype)]

    found = filled([*crop, *rest], files(8), 8)

    np.testing.assert_array_equal(found, filled([*crop, *map(Specified, rest)], files(8), 8))


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_arrays_are_closed_alike(end: list[T.Op]) -> None:
    """A pipeline on arrays that were never encoded ends in the same call."""
    images = [np.random.default_rng(seed).integers(0, 256, (40, 40, 3), np.uint8) for seed in range(8)]
    rest = [*end, T.ToLayout()]

    found = filled([T.CenterCrop(32), *rest], images, 8)

    np.testing.assert_array_equal(found, filled([T.CenterCrop(32), *map(Specified, rest)], images, 8))


@pytest.mark.parametrize(
    ("ops", "first"),
    [
        ([T.Invert(), NORMALIZE, T.ToLayout()], 1),
        ([T.Invert(), NORMALIZE, T.RandomErasing(), T.ToLayout()], 1),
        ([T.Invert(), T.RandomErasing(), T.ToLayout()], 2),
        ([T.Invert(), NORMALIZE, T.Pad(1), T.ToLayout()], 3),
        ([T.Invert(), NORMALIZE], 2),
        ([], 0),
    ],
    ids=repr,
)
def test_it_takes_what_it_knows(ops: list[T.Op], first: int) -> None:
    """ToLayout, a Normalize before it, and a RandomErasing between them; nothing without ToLayout."""
    assert Closing(ops, 0).first == first
    assert Closing(ops, len(ops)).first == len(ops)


def test_an_image_of_another_size_is_refused_as_ever() -> None:
    """What does not fit its row is an error of that sample, not memory of its neighbour."""

    class Grow(T.Op):
        """An op whose size is not what it says."""

        def image(self, image: Any, params: Params) -> Any:
            """One row too many."""
            return np.concatenate([image, image[:1]])

    images = [np.zeros((40, 40, 3), np.uint8)]

    with pytest.raises(SampleError, match="broadcast"):
        filled([T.CenterCrop(32), Grow(), NORMALIZE, T.ToLayout()], images, 1)
