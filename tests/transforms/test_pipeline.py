"""Pipelines apply ops to whole samples: by kind, in order, with randomness that belongs to the sample."""

from __future__ import annotations

import io
import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.rng import sample_scope
from penstock.sample import SampleKeys

AUGMENT = T.Pipeline([T.RandomResizedCrop(8), T.HorizontalFlip(0.5, []), T.VerticalFlip()])
KEY = SampleKeys(3, 1, np.array([17]))
Pair = namedtuple("Pair", "image label")  # noqa: PYI024  # the plain kind that users write


def noise(width: int = 20, height: int = 16) -> NDArray[np.uint8]:
    """An image with nothing regular in it."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def double(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A callable of a user's; module-level, so that it pickles."""
    return image * 2


@pytest.mark.parametrize("structure", ["bare", "tuple", "list", "namedtuple", "dict"])
def test_the_sample_keeps_its_structure(structure: str) -> None:
    """The image is transformed wherever it stands; all else passes untouched, in the same structure."""
    label = object()
    sample: Any = {
        "bare": noise(),
        "tuple": (noise(), label),
        "list": [noise(), label],
        "namedtuple": Pair(noise(), label),
        "dict": {"image": noise(), "label": label},
    }[structure]

    result = AUGMENT(sample, keys=KEY)

    assert type(result) is type(sample)
    expected = AUGMENT(noise(), keys=KEY)
    image = result if structure == "bare" else result["image"] if structure == "dict" else result[0]
    np.testing.assert_array_equal(image, expected)
    if structure != "bare":
        assert (result["label"] if structure == "dict" else result[1]) is label


def test_kinds_say_what_is_what() -> None:
    """With kinds given, boxes, keypoints and masks move with the image, by the numbers that it drew."""
    image = np.zeros((40, 60, 3), np.uint8)
    image[10:20, 30:50] = 255
    pipeline = T.Pipeline([T.RandomCrop(36), T.HorizontalFlip(0.5, []), T.VerticalFlip()])
    sample = {"photo": image, "where": [(30, 10, 50, 20)], "shape": image[:, :, 0], "points": [(30, 10, 1)], "id": 4}

    for index in range(20):
        result = pipeline(
            sample,
            keys=SampleKeys(0, 0, np.array([index])),
            kinds={"photo": "image", "where": "boxes", "shape": "mask", "points": "keypoints", "id": "int"},
        )
        bright = np.argwhere(result["photo"][:, :, 0])
        (y0, x0), (y1, x1) = bright.min(axis=0), bright.max(axis=0) + 1
        np.testing.assert_array_equal(result["where"], [(x0, y0, x1, y1)])
        np.testing.assert_array_equal(result["shape"], result["photo"][:, :, 0])
        assert result["points"][0, 0] in {x0, x1} or not 0 <= result["points"][0, 0] <= 36
        assert result["id"] == 4


def test_images_of_one_sample_share_their_numbers() -> None:
    """Two images of one size are cropped and flipped alike; one of another size by the same draws."""
    result = AUGMENT((noise(), noise(), noise(40, 32)), keys=KEY, kinds=("image", "image", "image"))

    np.testing.assert_array_equal(result[0], result[1])
    np.testing.assert_array_equal(result[2], AUGMENT(noise(40, 32), keys=KEY))


def test_the_current_sample_gives_the_key() -> None:
    """Inside a sample's scope the pipeline draws by that sample, exactly as with its key given."""
    with sample_scope(3, 1, 17):
        inside = AUGMENT(noise())

    np.testing.assert_array_equal(inside, AUGMENT(noise(), keys=KEY))
    assert not np.array_equal(inside, AUGMENT(noise(), keys=SampleKeys(3, 1, np.array([18]))))


def test_outside_any_sample_each_call_is_fresh() -> None:
    """Called by hand, an augmentation varies from call to call."""
    results = [AUGMENT(noise()).tobytes() for _ in range(8)]

    assert len(set(results)) == 8


def test_equal_ops_at_two_places_draw_apart() -> None:
    """An op's numbers depend on its position: two flips in a row are not the same flip."""
    image, twice = noise(), T.Pipeline([T.HorizontalFlip(), T.HorizontalFlip()])

    results = {twice(image, keys=SampleKeys(0, 0, np.array([i]))).tobytes() for i in range(20)}

    assert len(results) == 2


def test_any_callable_is_an_op() -> None:
    """A bare callable gets each image; Lambda(on="sample") the whole sample."""
    pipeline = T.Pipeline([double, T.Lambda(lambda sample: (sample[0] + 1, sample[1] * 10), on="sample")])

    image, label = pipeline((noise(), 4))

    np.testing.assert_array_equal(image, noise() * 2 + 1)
    assert label == 40


def test_a_callable_draws_from_the_sample() -> None:
    """``penstock.rng()`` inside a callable is the generator of the sample that the key names."""
    pipeline = T.Pipeline([lambda image: image + ps.rng().integers(0, 100)])

    first, again, other = (pipeline(0, keys=SampleKeys(0, 0, np.array([index]))) for index in (5, 5, 6))

    assert first == again != other


def test_inputs_are_not_changed() -> None:
    """Neither the sample nor its arrays are written to."""
    image = noise()
    sample = {"image": image, "boxes": np.array([(1, 2, 3, 4)], np.float32)}

    T.Pipeline([T.RandomCrop(30, padding=20), T.HorizontalFlip(1.0, []), T.ToLayout()])(sample, keys=KEY)

    np.testing.assert_array_equal(image, noise())
    np.testing.assert_array_equal(sample["boxes"], [(1, 2, 3, 4)])
    assert sample["image"] is image


def test_a_pipeline_pickles() -> None:
    """A copy in another process does the same."""
    pipeline = T.Pipeline([T.RandomResizedCrop(8), double, T.ToLayout()])

    copy = pickle.loads(pickle.dumps(pipeline))

    assert repr(copy) == repr(pipeline)
    np.testing.assert_array_equal(copy(noise(), keys=KEY), pipeline(noise(), keys=KEY))


def test_masks_are_decoded_with_their_values() -> None:
    """An encoded mask keeps its palette indices and 16-bit numbers; several channels are refused."""
    from penstock.errors import DecodeError

    classes = np.random.default_rng(0).integers(0, 5, (12, 10), dtype=np.uint8)
    deep = classes.astype(np.uint16) * 1000
    palette = Image.fromarray(classes)
    palette.putpalette([9, 9, 9] * 256)
    pipeline = T.Pipeline([T.Decode(), T.HorizontalFlip(1.0, [])], kinds=("image", "mask"))
    picture = _png(Image.fromarray(noise(10, 12)))

    for mask, values in ((_png(palette), classes), (_png(Image.fromarray(deep)), deep)):
        np.testing.assert_array_equal(pipeline((picture, mask))[1], values[:, ::-1])
    with pytest.raises(DecodeError, match="one channel"):
        pipeline((picture, picture))


@pytest.mark.parametrize(
    ("ops", "word"),
    [
        ([T.HorizontalFlip(), T.Decode()], "first"),
        ([T.Decode(), T.ToLayout(), T.CenterCrop(4)], "before ToLayout"),
        ([T.Decode(), T.ToLayout(), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)], "before ToLayout"),
        ([T.Decode(), "flip"], "callable"),
    ],
)
def test_orders_that_mean_nothing_are_refused(ops: list[Any], word: str) -> None:
    """What could only fail later, or silently mean something else, fails when the pipeline is made."""
    with pytest.raises(ArgumentError, match=word):
        T.Pipeline(ops)


def test_samples_that_do_not_fit_are_refused() -> None:
    """Kinds of another structure, no image at all, several keys, an array to decode: each says what is wrong."""
    with pytest.raises(ArgumentError, match="2 values"):
        AUGMENT((noise(), 1), keys=KEY, kinds=("image", "label", "boxes"))
    with pytest.raises(ArgumentError, match="must have an image"):
        AUGMENT((noise(), 1), keys=KEY, kinds=("label", "label"))
    with pytest.raises(ArgumentError, match="keys must have length 1"):
        AUGMENT(noise(), keys=SampleKeys(0, 0, np.arange(2)))
    with pytest.raises(ArgumentError, match="leave Decode out"):
        T.Pipeline([T.Decode()])(noise())


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
