"""Rotation, affine and perspective: torchvision's pixels on PIL images; annotations go where the pixels go."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from PIL import Image

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.transforms.ops.warp import WARP_FILTERS, Warp
from tests.transforms.pictures import KEYS, draws, grays, is_uniform, pictures, same, torchvision

ANGLES = (0.0, 90.0, 180.0, -90.0, 45.0, -30.0, 7.25, 359.9, 720.0, 0.01)
AFFINES = (
    (0.0, 0, 0, 1.0, 0.0, 0.0),
    (10.0, 3, -2, 1.2, 0.0, 0.0),
    (-75.0, 0, 0, 0.4, 15.0, -8.0),
    (180.0, -1, 1, 2.5, 0.0, 40.0),
    (0.0, 1000, 0, 1.0, 0.0, 0.0),
    (0.0, 0, 0, 1.0, 89.0, 0.0),
)


@pytest.mark.parametrize("filter", WARP_FILTERS)
def test_rotation_is_torchvisions(filter: str) -> None:  # noqa: A002
    """For right angles, small and large ones, every pixel is torchvision's."""
    functional, mode = torchvision(), torchvision("torchvision.transforms").InterpolationMode(filter)
    op = T.RandomRotation(0, filter, fill=(1, 20, 255))
    for image, angle in itertools.product(pictures(), ANGLES):
        expected = functional.rotate(Image.fromarray(image), angle, mode, fill=(1, 20, 255))
        same(op.image(image, np.array([angle])), expected)


@pytest.mark.parametrize("filter", WARP_FILTERS)
def test_affine_is_torchvisions(filter: str) -> None:  # noqa: A002
    """For any angle, shift, factor and shear, every pixel is torchvision's, in colour and in gray."""
    functional, mode = torchvision(), torchvision("torchvision.transforms").InterpolationMode(filter)
    op = T.RandomAffine(0, filter=filter, fill=77)
    for image, drawn in itertools.product([*pictures(), *grays()], AFFINES):
        angle, x, y, scale, shear_x, shear_y = drawn
        expected = functional.affine(Image.fromarray(image), angle, [x, y], scale, [shear_x, shear_y], mode, fill=77)
        same(op.image(image, np.array(drawn)), expected)


@pytest.mark.parametrize("filter", WARP_FILTERS)
@pytest.mark.parametrize("distortion", [0.1, 0.5, 1.0])
def test_perspective_is_torchvisions(filter: str, distortion: float) -> None:  # noqa: A002
    """The same corners give the same map; its last bit moves a value by a level, one in ten thousand by more."""
    functional, mode = torchvision(), torchvision("torchvision.transforms").InterpolationMode(filter)
    op, tilted = T.RandomPerspective(distortion, 1, filter, fill=(9, 8, 7)), 0
    for image in pictures():
        height, width = image.shape[:2]
        for params in draws(op, (width, height), 5):
            found = op.image(image, params)
            if not params[0]:
                assert found is image
                continue
            tilted += 1
            starts = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
            ends = params[1:].reshape(4, 2).astype(int).tolist()
            matrix = op.matrix(params, (width, height))
            assert matrix is not None
            np.testing.assert_allclose(matrix, functional._get_perspective_coeffs(starts, ends), rtol=2e-7, atol=1e-12)
            expected = functional.perspective(Image.fromarray(image), starts, ends, mode, fill=(9, 8, 7))
            difference = np.abs(found.astype(int) - np.asarray(expected))
            if ends == starts:
                same(found, image)
            elif width * height > 200:  # in the smallest, noise of torchvision's solver decides between pixels
                assert np.count_nonzero(difference > 1) <= difference.size / 10_000
    assert tilted >= 25


def test_angles_are_uniform() -> None:
    """The angle fills its range evenly."""
    is_uniform(draws(T.RandomRotation(30))[:, 0], -30, 30)
    is_uniform(draws(T.RandomRotation((10, 350)))[:, 0], 10, 350)


def test_affine_parameters_are_torchvisions() -> None:
    """Each parameter fills its range evenly, shifts in whole pixels, shares of that image's own width and height."""
    op = T.RandomAffine((-5, 15), (0.2, 0.5), (0.5, 2), (1, 2, -8, 3))

    params = draws(op, (300, 200))

    for column, bounds in {0: (-5, 15), 3: (0.5, 2), 4: (1, 2), 5: (-8, 3)}.items():
        is_uniform(params[:, column], *bounds)
    assert (params[:, 1:3] == np.rint(params[:, 1:3])).all()
    for column, most in {1: 60, 2: 100}.items():
        is_uniform(params[:, column] + 0.5, -most - 0.5, most + 1.5)
    plain = draws(T.RandomAffine(0), count=5)
    np.testing.assert_array_equal(plain, np.tile([0, 0, 0, 1, 0, 0], (5, 1)))


def test_corners_are_torchvisions() -> None:
    """Corners of a tilt are whole pixels, each equally likely up to torchvision's bounds, opposite corners apart."""
    params = draws(T.RandomPerspective(0.5, p=0.3), (40, 21))
    corners = params[:, 1:].reshape(-1, 4, 2)

    chosen = params[:, 0].mean()
    assert abs(chosen - 0.3) <= 4 * np.sqrt(0.21 / len(params))
    for corner, (x, y) in enumerate([((0, 10), (0, 5)), ((29, 39), (0, 5)), ((29, 39), (15, 20)), ((0, 10), (15, 20))]):
        for axis, (low, high) in enumerate((x, y)):
            values, counts = np.unique(corners[:, corner, axis], return_counts=True)
            np.testing.assert_array_equal(values, np.arange(low, high + 1))
            expected = len(params) / len(values)
            assert np.abs(counts - expected).max() <= 5 * np.sqrt(expected)


def test_a_line_is_not_tilted() -> None:
    """What is one pixel wide or high, or would be folded, stays as it is."""
    op = T.RandomPerspective(1, p=1)
    for size in ((1, 1), (1, 9), (9, 1)):
        assert not draws(op, size, 50)[:, 0].any()
    folded = draws(op, (2, 2), 200)
    assert 0 < folded[:, 0].mean() < 1
    assert all(np.isfinite(op.matrix(params, (2, 2)) or math.nan).all() for params in folded if params[0])


MOVING: list[tuple[Warp | T.RandAugment | T.TrivialAugmentWide, str]] = [
    (T.RandomRotation(180), "nearest"),
    (T.RandomRotation(25, "bilinear"), "bilinear"),
    (T.RandomAffine(40, (0.1, 0.1), (0.8, 1.6), 15), "nearest"),
    (T.RandomAffine(0, (0.3, 0.3)), "nearest"),
    (T.RandomPerspective(0.4, p=1), "bilinear"),
    (T.RandAugment(2, 14), "nearest"),
    (T.TrivialAugmentWide(), "nearest"),
]


@pytest.mark.parametrize(("op", "_filter"), MOVING, ids=repr)
def test_annotations_follow_a_block(op: T.Op, _filter: str) -> None:
    """A mask's block lies within its moved box and touches the box's sides; the box's corners are points that moved."""
    width, height, seen = 90, 70, 0
    mask = np.zeros((height, width), np.uint8)
    mask[20:45, 30:64] = 255
    box = np.array([(30, 20, 64, 45)], np.float32)
    points = np.array([(30, 20), (64, 20), (64, 45), (30, 45)], np.float32)
    for params in draws(op, (width, height), 40):
        moved = op.mask(mask, params)
        found = op.boxes(box, params, (width, height))[0]
        corners = op.keypoints(points, params, (width, height))

        assert moved.shape == mask.shape
        assert found.dtype == corners.dtype == np.float32
        limits = np.array([width, height])
        outline = np.concatenate([np.clip(corners.min(axis=0), 0, limits), np.clip(corners.max(axis=0), 0, limits)])
        if len(np.argwhere(moved)) == 0:
            assert (found[2] - found[0]) * (found[3] - found[1]) < 30
            continue
        rows, columns = np.flatnonzero(moved.any(axis=1)), np.flatnonzero(moved.any(axis=0))
        assert found[0] - 1 <= columns[0]
        assert found[1] - 1 <= rows[0]
        assert columns[-1] + 1 <= found[2] + 1
        assert rows[-1] + 1 <= found[3] + 1
        if (corners >= 0).all() and (corners <= limits).all():  # no corner was cut: the block reaches its box
            seen += 1
            np.testing.assert_allclose(found, outline, atol=1e-3)
            reached = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
            slack = 2.5 if not isinstance(op, T.RandAugment) else 4.5  # a corner's tip may hold no pixel's centre
            np.testing.assert_allclose(reached, found, atol=slack)
    assert seen >= 5


@pytest.mark.parametrize(("op", "_filter"), MOVING, ids=repr)
def test_keypoints_follow_a_pixel(op: T.Op, _filter: str) -> None:
    """The centre of a marked spot of 5 x 5 pixels moves to the centre of what becomes of it, within a pixel."""
    width, height, seen = 60, 50, 0
    draw = np.random.default_rng(0)
    for params in draws(op, (width, height), 60):
        x, y = int(draw.integers(12, width - 12)), int(draw.integers(12, height - 12))
        mask = np.zeros((height, width), np.uint8)
        mask[y - 2 : y + 3, x - 2 : x + 3] = 1
        point = op.keypoints(np.array([(x + 0.5, y + 0.5, 1.0)], np.float32), params, (width, height))[0]
        found = np.argwhere(op.mask(mask, params))
        inside = (point[:2] > 8).all() and point[0] < width - 8 and point[1] < height - 8
        if inside:
            seen += 1
            np.testing.assert_allclose(found.mean(axis=0)[::-1] + 0.5, point[:2], atol=1.0)
        assert point[2] == 1
    assert seen >= 15


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32, np.bool_])
def test_masks_of_any_dtype_are_sampled_alike(dtype: Any) -> None:
    """A mask moves as an image by nearest neighbour does, whatever its dtype, with its own fill."""
    op = T.RandomAffine(30, (0.2, 0.2), (0.5, 1.5), fill=1, mask_fill=1)
    image = np.random.default_rng(0).integers(0, 2, (33, 47), dtype=np.uint8)
    for params in draws(op, (47, 33), 10):
        moved = op.mask(image.astype(dtype), params)
        assert moved.dtype == dtype
        np.testing.assert_array_equal(moved.astype(np.uint8), op.image(image, params))


def test_boxes_outside_have_no_area() -> None:
    """A box shifted out of the image is kept, flat, at its border."""
    op = T.RandomAffine(0)

    found = op.boxes(np.array([(1, 2, 5, 6)], np.float32), np.array([0, 1000, 0, 1, 0, 0]), (40, 30))

    np.testing.assert_array_equal(found, [(40, 2, 40, 6)])


def test_nothing_drawn_nothing_moved() -> None:
    """No angle and no tilt give the very same image, mask, boxes and points."""
    image, mask = next(pictures()), np.zeros((1, 1), np.uint8)
    boxes, points = np.zeros((1, 4), np.float32), np.zeros((1, 2), np.float32)
    for op in (T.RandomRotation(0), T.RandomPerspective(p=0)):
        params = op.draw(KEYS[:1], np.array([(1, 1)], np.int32), 0)[0]
        assert op.image(image, params) is image
        assert op.mask(mask, params) is mask
        assert op.boxes(boxes, params, (1, 1)) is boxes
        assert op.keypoints(points, params, (1, 1)) is points


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.RandomRotation(-5),
        lambda: T.RandomRotation((5, -5)),
        lambda: T.RandomRotation(math.inf),
        lambda: T.RandomRotation(5, "bicubic"),
        lambda: T.RandomRotation(5, fill=256),
        lambda: T.RandomRotation(5, fill=(1, 2)),
        lambda: T.RandomRotation(5, fill=0.5),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.RandomRotation(5, mask_fill=-1),
        lambda: T.RandomAffine(5, translate=(0.1, 1.1)),
        lambda: T.RandomAffine(5, translate=(0.1,)),  # type: ignore[arg-type]  # the mistake under test
        lambda: T.RandomAffine(5, scale=(0, 1)),
        lambda: T.RandomAffine(5, scale=(2, 1)),
        lambda: T.RandomAffine(5, shear=90),
        lambda: T.RandomAffine(5, shear=(1, 2, 3)),
        lambda: T.RandomPerspective(1.5),
        lambda: T.RandomPerspective(0.5, p=2),
        lambda: T.Pipeline([T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.RandomRotation(3)]),
        lambda: T.RandomRotation(5).image(np.zeros((4, 4, 3)), np.ones(1)),
    ],
)
def test_settings_that_mean_nothing_are_refused(make: Any) -> None:
    """Settings that cannot mean anything are an ArgumentError."""
    with pytest.raises(ArgumentError):
        make()
