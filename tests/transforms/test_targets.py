"""Pixels and targets stay together: what is moved, what is refused, and what collation takes."""

from __future__ import annotations

import io
import re
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys

KEY = SampleKeys(3, 1, np.array([17]))
FLIP = T.Pipeline([T.HorizontalFlip(1, [])])
BOX = [[2, 3, 10, 12]]
Named = namedtuple("Named", "image bbox label")  # noqa: PYI024  # the plain kind that users write


def picture(width: int = 20, height: int = 16) -> NDArray[np.uint8]:
    """An image with nothing regular in it."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(pixels: NDArray[Any]) -> bytes:
    """The pixels as a file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


# what comes out


@pytest.mark.parametrize(
    "ops",
    [
        [T.HorizontalFlip(1, [])],
        [T.VerticalFlip(p=1)],
        [T.CenterCrop(9)],
        [T.CenterCrop((16, 7)), T.HorizontalFlip(1, [])],
        [T.RandomErasing(p=1), T.VerticalFlip(p=1)],
        [lambda image: image[::-1, ::-1]],
        [T.HorizontalFlip(1, []), T.Lambda(lambda sample: sample, on="sample")],
    ],
    ids=lambda ops: re.sub(r" at 0x\w+", "", repr(ops)),
)
@pytest.mark.parametrize("encoded", [False, True], ids=["array", "encoded"])
def test_results_lie_in_memory_row_by_row(ops: list[Any], encoded: bool) -> None:
    """A pipeline ends in C-contiguous arrays that may be written to, whatever views its ops make."""
    image, mask = picture(), picture()[:, :, 0].copy()
    if encoded:
        ops = [T.Decode(), *ops]
    sample = {"image": png(image) if encoded else image, "mask": png(mask) if encoded else mask}

    result = T.Pipeline(ops)(sample, keys=KEY)

    for name in ("image", "mask"):
        assert result[name].flags.c_contiguous
        assert result[name].flags.writeable
    assert sample["image"] is not result["image"]


@pytest.mark.parametrize("ops", [[T.Decode(), T.HorizontalFlip(1, [])], [T.Decode(), T.Invert(), T.VerticalFlip(p=1)]])
def test_results_of_a_program_lie_row_by_row(ops: list[Any]) -> None:
    """The compiled pipeline, image by image, likewise."""
    [found] = T.Pipeline(ops).compile("image").run([png(picture())], KEY)

    assert found.flags.c_contiguous
    assert found.flags.writeable


def test_targets_that_cannot_be_written_to_are_copied() -> None:
    """Boxes, keypoints and masks of a read-only sample come out as arrays of their own."""
    sample = {
        "image": picture(),
        "boxes": np.frombuffer(np.array(BOX, np.float32).tobytes(), np.float32).reshape(1, 4),
        "keypoints": np.frombuffer(np.array([[1, 2]], np.float32).tobytes(), np.float32).reshape(1, 2),
        "mask": np.frombuffer(bytes(320), np.uint8).reshape(16, 20),
    }

    result = T.Pipeline([T.HorizontalFlip(p=0)])(sample)

    for name in ("boxes", "keypoints", "mask"):
        assert result[name].flags.writeable
        np.testing.assert_array_equal(result[name], sample[name])


def test_a_mask_of_another_byte_order_is_brought_to_this_machine_s() -> None:
    """A 16-bit TIFF may be big-endian; torch takes arrays of the machine's order alone."""
    values = np.arange(320, dtype=np.uint16).reshape(16, 20) * 200
    file = io.BytesIO()
    big: Any = Image.frombytes("I;16B", (20, 16), values.astype(">u2").tobytes())
    big.save(file, "TIFF")

    mask = T.Pipeline([T.Decode()])({"image": png(picture()), "mask": file.getvalue()})["mask"]

    assert mask.dtype.isnative
    np.testing.assert_array_equal(mask, values)


# names


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bbox", BOX),
        ("bboxes", np.array(BOX)),
        ("box", [2, 3, 10, 12]),
        ("gt_boxes", np.array(BOX)),
        ("gtBoxes", np.array(BOX)),
        ("boxes_xyxy", np.array(BOX)),
        ("masks", np.zeros((2, 16, 20), np.uint8)),
        ("segmentation", np.zeros((16, 20), np.uint8)),
        ("instance_masks", np.zeros((2, 16, 20), np.uint8)),
        ("pixel_mask", np.zeros((16, 20), np.uint8)),
        ("seg", Image.new("L", (20, 16))),
        ("depth", np.zeros((16, 20), np.float32)),
        ("landmarks", [[1, 2]]),
        ("keypoint", [1, 2]),
        ("points", np.zeros((5, 2))),
        ("polygons", [[[1, 2], [3, 4], [5, 6]]]),
        ("bbox", []),
    ],
)
def test_a_field_that_looks_like_a_target_is_not_left_behind(name: str, value: Any) -> None:
    """Its kind must be said: the error names the field and the way."""
    with pytest.raises(ArgumentError, match=rf"'{name}'.*kinds={{") as caught:
        FLIP({"image": picture(), name: value})

    assert "HorizontalFlip" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("label", 3),
        ("labels", np.zeros(4)),
        ("box_labels", np.zeros(4)),
        ("boxes_count", 4),
        ("num_boxes", 4),
        ("has_mask", True),
        ("mask_path", "masks/1.png"),
        ("attention_mask", np.ones(77, np.int64)),
        ("bbox", None),
        ("points", 12.5),
        ("caption", "two boxes"),
    ],
)
def test_other_fields_pass(name: str, value: Any) -> None:
    """Numbers, text, lists of labels and masks of tokens are no targets in the picture."""
    result = FLIP({"image": picture(), name: value})

    assert result[name] is value


@pytest.mark.parametrize("kinds", [{"image": "image"}, {"image": "image", "bbox": None}])
def test_kinds_say_that_a_field_stays(kinds: Any) -> None:
    """A field without a kind, or with None, is left as it is, once kinds are given."""
    result = FLIP({"image": picture(), "bbox": BOX}, kinds=kinds)

    assert result["bbox"] is BOX


def test_kinds_say_that_a_field_moves() -> None:
    """In the pipeline or at the call, alike."""
    sample = {"image": picture(), "bbox": BOX}
    kinds = {"image": "image", "bbox": "boxes"}

    of_call = FLIP(sample, kinds=kinds)
    of_pipeline = T.Pipeline([T.HorizontalFlip(1, [])], kinds=kinds)(sample)

    for result in (of_call, of_pipeline):
        np.testing.assert_array_equal(result["bbox"], [[10, 3, 18, 12]])


def test_what_moves_nothing_asks_for_no_kinds() -> None:
    """Colours alone leave targets where they are."""
    sample = {"image": picture(), "bbox": BOX}

    result = T.Pipeline([T.Invert(), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout()])(sample)

    assert result["bbox"] is BOX


@pytest.mark.parametrize("name", ["boxes", "bbox", "masks", "keypoints", "mask"])
@pytest.mark.parametrize("nest", ["tuple", "dict"])
def test_targets_inside_of_others_are_not_left_behind(name: str, nest: str) -> None:
    """(image, {"boxes": ...}), as torchvision's detection has it, and {"image": ..., "objects": {"bbox": ...}}."""
    value = np.zeros((16, 20), np.uint8) if "mask" in name else [[1.0, 2.0]] if name == "keypoints" else BOX
    target = {name: value, "labels": [1]}
    sample: Any = (picture(), target) if nest == "tuple" else {"image": picture(), "objects": target}

    with pytest.raises(ArgumentError, match=rf"'{name}'.*kinds="):
        FLIP(sample)


def test_targets_of_a_named_tuple_are_not_left_behind() -> None:
    """Its first value is the image; the names of the others count."""
    with pytest.raises(ArgumentError, match=r"'bbox'.*kinds=\('image', 'boxes', None\)"):
        FLIP(Named(picture(), BOX, 1))
    result = FLIP(Named(picture(), BOX, 1), kinds=("image", "boxes", None))

    assert type(result) is Named
    np.testing.assert_array_equal(result.bbox, [[10, 3, 18, 12]])


def test_kinds_reach_inside() -> None:
    """A tree of kinds moves what lies deeper."""
    image, target = FLIP((picture(), {"boxes": BOX, "labels": [1]}), kinds=("image", {"boxes": "boxes"}))

    np.testing.assert_array_equal(image, picture()[:, ::-1])
    np.testing.assert_array_equal(target["boxes"], [[10, 3, 18, 12]])
    assert target["labels"] == [1]


def test_an_unknown_kind_is_refused() -> None:
    """A kind that is misspelt would leave its field behind."""
    with pytest.raises(ArgumentError, match=r"boxes, keypoints.*'bbox'"):
        T.Pipeline([T.HorizontalFlip()], kinds={"image": "image", "where": "bbox"})
    with pytest.raises(ArgumentError, match=r"boxes, keypoints.*'bbox'"):
        FLIP({"image": picture(), "where": BOX}, kinds={"image": "image", "where": "bbox"})


def test_kinds_of_fields_that_are_not_there_are_refused() -> None:
    """The error names the field and what the sample has."""
    with pytest.raises(ArgumentError, match=r"image, label.*'where'"):
        FLIP({"image": picture(), "label": 1}, kinds={"image": "image", "where": "boxes"})


def test_a_sample_whose_image_has_another_name_is_refused_by_it() -> None:
    """The error lists the fields and says how to name the image."""
    with pytest.raises(ArgumentError, match=r"img, label.*kinds={'img': 'image'}"):
        FLIP({"img": picture(), "label": 1})


# sizes and shapes


@pytest.mark.parametrize("op", [T.HorizontalFlip(p=0), T.CenterCrop(8), T.Resize(8), T.RandomRotation(3), T.Pad(1)])
def test_a_mask_of_another_size_than_its_image_is_refused(op: T.Op) -> None:
    """Whether or not the op would fail on it; both sizes are named."""
    with pytest.raises(ArgumentError, match=r"size of its image, 20 x 16 pixels, got 20 x 15"):
        T.Pipeline([op])({"image": picture(), "mask": np.zeros((15, 20), np.uint8)})


@pytest.mark.parametrize("ops", [[], [T.Invert(p=0)], [T.HorizontalFlip(p=0)]], ids=repr)
@pytest.mark.parametrize(
    "mask", [png(np.zeros((15, 20), np.uint8)), np.zeros((15, 20), np.uint8)], ids=["png", "array"]
)
def test_a_decoded_mask_of_another_size_is_refused(ops: list[Any], mask: Any) -> None:
    """Decode itself compares, and what follows."""
    with pytest.raises(ArgumentError, match=r"size of its image, 20 x 16 pixels, got 20 x 15"):
        T.Pipeline([T.Decode(), *ops])({"image": png(picture()), "mask": mask})


def test_a_stack_of_masks_is_refused() -> None:
    """(n, H, W) is not HW; the error says the shape."""
    with pytest.raises(ArgumentError, match=r"\(2, 16, 20\)"):
        FLIP({"image": picture(), "mask": np.zeros((2, 16, 20), np.uint8)})


@pytest.mark.parametrize(
    "op", [T.HorizontalFlip(1, []), T.RandomCrop(9), T.Resize(8), T.RandomRotation((30, 40)), T.Pad(2)]
)
def test_channels_of_a_mask_are_moved_alike(op: T.Op) -> None:
    """A mask of several channels, HWC, is moved as each of them alone."""
    mask = np.random.default_rng(1).integers(0, 3, (16, 20, 2), dtype=np.uint8)

    found = T.Pipeline([op])({"image": picture(), "mask": mask}, keys=KEY)["mask"]

    for channel in range(2):
        alone = T.Pipeline([op])({"image": picture(), "mask": mask[:, :, channel]}, keys=KEY)["mask"]
        np.testing.assert_array_equal(found[:, :, channel], alone)


def test_masks_of_several_images_are_held_to_the_first() -> None:
    """As boxes are: the first image is the one that targets follow."""
    kinds = ("image", "image", "mask")

    with pytest.raises(ArgumentError, match="got 9 x 9"):
        FLIP((picture(), picture(9, 9), np.zeros((9, 9), np.uint8)), kinds=kinds)
    assert len(FLIP((picture(), picture(9, 9), np.zeros((16, 20), np.uint8)), kinds=kinds)) == 3


@pytest.mark.parametrize(
    ("boxes", "words"),
    [
        (np.zeros((3, 5)), r"\(3, 5\).*a field of its own"),
        (np.zeros((3, 6)), r"\(3, 6\).*a field of its own"),
        (np.zeros((3, 2)), r"\(3, 2\)"),
        (np.zeros(5), r"\(5,\)"),
        (np.zeros((2, 3, 4)), r"\(2, 3, 4\)"),
        ([[1, 2, 3, 4], [1, 2]], "must be an array of numbers"),
        ([["a", "b", "c", "d"]], "must be an array of numbers"),
        ([{"bbox": [1, 2, 3, 4]}], "must be an array of numbers"),
        ("1 2 3 4", "must be an array of numbers"),
    ],
)
@pytest.mark.parametrize("op", [T.HorizontalFlip(1, []), T.HorizontalFlip(p=0), T.RandomResizedCrop(8)], ids=repr)
def test_boxes_of_another_shape_are_refused(boxes: Any, words: str, op: T.Op) -> None:
    """The error says the shape that was given; a fifth column has a place of its own."""
    with pytest.raises(ArgumentError, match=words):
        T.Pipeline([op])({"image": picture(), "boxes": boxes})


@pytest.mark.parametrize("boxes", [[], np.zeros(0), np.zeros((0, 4)), np.zeros((0, 4), np.int64), ()], ids=repr)
def test_no_boxes_are_no_boxes(boxes: Any) -> None:
    """However a sample without objects writes it, it comes out as (0, 4)."""
    found = T.Pipeline([T.RandomResizedCrop(8), T.HorizontalFlip()])({"image": picture(), "boxes": boxes})["boxes"]

    assert found.shape == (0, 4)
    assert found.dtype == np.float32


@pytest.mark.parametrize("boxes", [BOX, np.array(BOX), np.array(BOX, np.float64), [np.array(BOX[0])], [tuple(BOX[0])]])
def test_boxes_may_be_lists_and_any_numbers(boxes: Any) -> None:
    """They come out as float32."""
    found = FLIP({"image": picture(), "boxes": boxes})["boxes"]

    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[10, 3, 18, 12]])


@pytest.mark.parametrize("box", [BOX[0], np.array(BOX[0])], ids=repr)
def test_one_box_may_stand_alone(box: Any) -> None:
    """(4,) is moved and keeps its shape; so does one keypoint."""
    sample = {"image": picture(), "boxes": box, "keypoints": [2, 3]}

    result = T.Pipeline([T.HorizontalFlip(1, []), T.Pad(1)])(sample)

    np.testing.assert_array_equal(result["boxes"], [11, 4, 19, 13])
    np.testing.assert_array_equal(result["keypoints"], [19, 4])


@pytest.mark.parametrize(("points", "shape"), [(np.zeros((3, 4)), r"\(3, 4\)"), (np.zeros(51), r"\(51,\)")])
def test_keypoints_of_another_shape_are_refused(points: Any, shape: str) -> None:
    """The error says the shape that was given and the two that are allowed."""
    with pytest.raises(ArgumentError, match=rf"\(n, 2\) or \(n, 3\).*{shape}"):
        FLIP({"image": picture(), "keypoints": points})


def test_no_keypoints_are_no_keypoints() -> None:
    """An empty list comes out as (0, 2)."""
    assert FLIP({"image": picture(), "keypoints": []})["keypoints"].shape == (0, 2)


# points that change their names


POINTS = {"image": picture(), "keypoints": np.array([(3, 4), (9, 4)], np.float32)}


def test_a_flip_of_keypoints_without_pairs_is_said_once() -> None:
    """Left and right keep their rows, which nobody has asked for: one warning for a pipeline, with what to write."""
    pipeline = T.Pipeline([T.Invert(), T.HorizontalFlip(0.5)])

    with pytest.warns(UserWarning, match=r"HorizontalFlip\(p=0.5\).*keypoint_pairs=\[\]") as warned:
        _ = [pipeline(POINTS) for _ in range(2)]

    assert len(warned) == 1


@pytest.mark.parametrize(
    "flip", [T.HorizontalFlip(1, []), T.HorizontalFlip(1, [(0, 1)], 2), T.HorizontalFlip(0)], ids=repr
)
def test_a_flip_that_knows_its_pairs_is_silent(flip: T.Op) -> None:
    """Pairs that are given, none on purpose, and a flip that never mirrors."""
    T.Pipeline([flip])(POINTS)
    T.Pipeline([T.HorizontalFlip(1)])({"image": picture(), "boxes": BOX})
