"""MixUp and CutMix: torchvision's arithmetic on arrays and tensors, keyed by the batch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import transforms as T
from penstock.errors import ArgumentError
from tests.transforms.pictures import is_uniform, same, torchvision

IMAGES = np.random.default_rng(0).random((6, 3, 20, 31), np.float32)
LABELS = np.array([0, 4, 1, 1, 2, 0])
SOFT = np.random.default_rng(1).dirichlet(np.ones(5), 6).astype(np.float32)


def share_of(targets: Any) -> float:
    """How much of each image is its own, read off the second image's label (4; its neighbour's is 0)."""
    return float(targets[1, 4])


@pytest.mark.parametrize("labels", [LABELS, SOFT], ids=["numbers", "shares"])
def test_mixup_is_torchvisions(labels: Any) -> None:
    """Images and labels are torchvision's for the same share."""
    torch, v2 = pytest.importorskip("torch"), torchvision("torchvision.transforms.v2")
    mix = T.MixUp(0.8, 5, seed=3)
    theirs = v2.MixUp(alpha=0.8, num_classes=5)
    for batch in range(20):
        share = share_of(mix(IMAGES, LABELS, batch=batch)[1])

        images, targets = mix(IMAGES, labels, batch=batch)

        params = {"labels": torch.from_numpy(labels), "batch_size": 6, "lam": share}
        expected = theirs.transform(torch.from_numpy(IMAGES), params).numpy()
        np.testing.assert_allclose(images, expected, atol=2e-7)
        np.testing.assert_allclose(targets, theirs.transform(params["labels"], params).numpy(), atol=2e-7)
        assert images.dtype == targets.dtype == np.float32


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_cutmix_is_torchvisions(layout: str, dtype: Any) -> None:
    """Pixels are the neighbour's in one rectangle of torchvision's shape and their own outside; labels go by area."""
    mix = T.CutMix(1.0, 5, seed=3, layout=layout)
    chw = (IMAGES * 255).astype(dtype)
    given = chw if layout == "CHW" else np.ascontiguousarray(chw.transpose(0, 2, 3, 1))
    for batch in range(60):
        images, targets = mix(given, LABELS, batch=batch)

        found = images if layout == "CHW" else images.transpose(0, 3, 1, 2)
        changed = (found != chw).any(axis=(0, 1))
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        y, x = (slice(s[0], s[-1] + 1) if len(s) else slice(0, 0) for s in (rows, columns))
        expected = chw.copy()
        expected[:, :, y, x] = np.roll(chw, 1, axis=0)[:, :, y, x]
        same(found, expected)
        assert share_of(targets) == pytest.approx(1 - len(rows) * len(columns) / (20 * 31), abs=1e-6)


class Dealt:
    """A generator that deals what it was given."""

    def __init__(self, share: float, x: int, y: int) -> None:
        self.share, self.places = share, [x, y]

    def beta(self, a: float, b: float) -> float:
        """The share."""
        return self.share

    def integers(self, bound: int) -> int:
        """The next place."""
        return self.places.pop(0) % bound


@settings(max_examples=settings().max_examples // 2)
@given(
    share=st.floats(0, 1, width=32),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    place=st.tuples(st.integers(0, 999), st.integers(0, 999)),
)
def test_each_rectangle_is_torchvisions(share: float, size: tuple[int, int], place: tuple[int, int]) -> None:
    """For the same share and centre, the rectangle and the share left are torchvision's."""
    torch, v2 = pytest.importorskip("torch"), torchvision("torchvision.transforms.v2")
    theirs, (height, width) = v2.CutMix(num_classes=5), size
    images = np.zeros((2, 3, height, width), np.float32)
    centre = [torch.tensor([place[0] % width]), torch.tensor([place[1] % height])]
    with (
        mock.patch.object(torch, "randint", side_effect=centre),
        mock.patch.object(theirs._dist, "sample", return_value=torch.tensor([share])),
    ):
        expected = theirs.make_params([torch.from_numpy(images)])

    draw: Any = Dealt(share, *place)
    _, left = T.CutMix()._mix(images, draw)

    assert T.CutMix()._rectangle(width, height, Dealt(share, *place)) == expected["box"]  # type: ignore[arg-type]  # a fake
    assert left == pytest.approx(expected["lam_adjusted"])


def test_areas_are_torchvisions() -> None:
    """Areas are distributed as torchvision's are."""
    torch, v2 = pytest.importorskip("torch"), torchvision("torchvision.transforms.v2")
    torch.manual_seed(0)
    theirs = v2.CutMix(alpha=1.0, num_classes=5)
    image = torch.zeros(2, 3, 20, 31)
    mix = T.CutMix(1.0, 5)

    ours = [share_of(mix(IMAGES, LABELS, batch=batch)[1]) for batch in range(1500)]

    drawn = [theirs.make_params([image])["lam_adjusted"] for _ in range(1500)]
    for quantile in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert abs(np.quantile(ours, quantile) - np.quantile(drawn, quantile)) < 0.06


def test_shares_are_beta() -> None:
    """The share's distribution is Beta(alpha, alpha): flat at 1, and of the variance 1 / (4 (2 alpha + 1))."""
    for alpha in (0.2, 1.0, 3.0):
        mix = T.MixUp(alpha, 5, seed=1)
        shares = np.array([share_of(mix(IMAGES[:, :1, :1, :1], LABELS, batch=batch)[1]) for batch in range(4000)])
        assert abs(shares.mean() - 0.5) < 0.03
        assert abs(shares.var() - 1 / (4 * (2 * alpha + 1))) < 0.01
        if alpha == 1:
            is_uniform(shares, 0, 1)


@pytest.mark.parametrize("kind", [T.MixUp, T.CutMix])
def test_tensors_are_mixed_as_arrays_are(kind: Any) -> None:
    """A tensor comes back as a tensor, of the same values; the inputs stay as they were."""
    torch = pytest.importorskip("torch")
    mix = kind(1.0, 5, seed=9)
    for labels in (LABELS, SOFT):
        images, targets = torch.from_numpy(IMAGES.copy()), torch.from_numpy(labels.copy())

        found = mix(images, targets, batch=4, epoch=2)

        for tensor, array in zip(found, mix(IMAGES, labels, batch=4, epoch=2), strict=True):
            assert isinstance(tensor, torch.Tensor)
            np.testing.assert_allclose(tensor.numpy(), array, atol=2e-7)
            assert tensor.dtype == torch.float32
        same(images.numpy(), IMAGES)
        same(targets.numpy(), labels)


@pytest.mark.parametrize("kind", [T.MixUp, T.CutMix])
def test_the_batch_is_the_key(kind: Any) -> None:
    """The same seed, epoch and batch give the same bytes, in a copy too; each of them changes them."""
    mix = kind(1.0, 5, seed=9)
    first = mix(IMAGES, LABELS, batch=1, epoch=1)

    again = pickle.loads(pickle.dumps(mix))(IMAGES, LABELS, batch=1, epoch=1)

    for found, expected in zip(again, first, strict=True):
        same(found, expected)
    for other, batch, epoch in ((mix, 2, 1), (mix, 1, 2), (kind(1.0, 5, seed=8), 1, 1)):
        assert not np.array_equal(other(IMAGES, LABELS, batch=batch, epoch=epoch)[1], first[1])


@pytest.mark.parametrize("kind", [T.MixUp, T.CutMix])
def test_a_batch_of_one_is_itself(kind: Any) -> None:
    """The only image of a batch is its own neighbour."""
    images, targets = kind(1.0, 5)(IMAGES[:1], LABELS[:1], batch=0)

    np.testing.assert_allclose(images, IMAGES[:1], atol=1e-7)
    np.testing.assert_allclose(targets, [[1, 0, 0, 0, 0]], atol=1e-7)


def test_torch_is_not_imported() -> None:
    """Mixing arrays needs no torch."""
    code = (
        "import sys, numpy as np; from penstock import transforms as T\n"
        "for mix in (T.MixUp(1, 2), T.CutMix(1, 2)):\n"
        "    mix(np.ones((2, 3, 4, 4), np.float32), np.array([0, 1]), batch=0)\n"
        "sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.MixUp(0),
        lambda: T.MixUp(float("inf")),
        lambda: T.MixUp(1, 0),
        lambda: T.MixUp(1, 5, seed=-1),
        lambda: T.CutMix(1, 5, layout="NCHW"),
        lambda: T.MixUp(1)(IMAGES, LABELS, batch=0),
        lambda: T.MixUp(1, 4)(IMAGES, LABELS, batch=0),
        lambda: T.MixUp(1, 5)(IMAGES, LABELS - 1, batch=0),
        lambda: T.MixUp(1, 4)(IMAGES, SOFT, batch=0),
        lambda: T.MixUp(1, 5)(IMAGES, LABELS[:5], batch=0),
        lambda: T.MixUp(1, 5)(IMAGES, LABELS, batch=-1),
        lambda: T.MixUp(1, 5)((IMAGES * 255).astype(np.uint8), LABELS, batch=0),
        lambda: T.CutMix(1, 5)(IMAGES[0], LABELS[:3], batch=0),
    ],
)
def test_arguments_that_mean_nothing_are_refused(make: Any) -> None:
    """Arguments that cannot mean anything are an ArgumentError."""
    with pytest.raises(ArgumentError):
        make()
