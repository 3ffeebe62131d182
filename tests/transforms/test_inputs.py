"""What people put into a pipeline: it works, or one sentence says what to do."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.frameworks import OP_NAMES
from penstock.sample import SampleKeys
from tests.datasets.test_store_dataset import MemoryStore

KEY = SampleKeys(3, 1, np.array([17]))
CROP = T.Pipeline([T.RandomResizedCrop(8), T.HorizontalFlip()])
DECODE = T.Pipeline([T.Decode(), T.RandomResizedCrop(8)])


def pixels(width: int = 20, height: int = 16) -> NDArray[np.uint8]:
    """An image with nothing regular in it."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def jpeg() -> bytes:
    """A picture as a file."""
    file = io.BytesIO()
    Image.fromarray(pixels()).save(file, "JPEG")
    return file.getvalue()


STARTS: list[Any] = [
    T.Resize(8), T.Resize((8, 8)), T.CenterCrop(8), T.RandomResizedCrop(8), T.HorizontalFlip(p=0), T.VerticalFlip(p=1),
    T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout(), T.ColorJitter(0.4), T.Letterbox(8), T.Pad(1),
    T.RandomErasing(p=0), T.RandomRotation(3), T.RandAugment(), T.Grayscale(),
]  # fmt: skip


@pytest.mark.parametrize("op", STARTS, ids=lambda op: type(op).__name__)
@pytest.mark.parametrize("kind", [bytes, memoryview, bytearray])
def test_a_pipeline_without_decode_asks_for_it(op: T.Op, kind: Any) -> None:
    """Encoded bytes in front of any op that works on pixels, whether or not the op would touch them."""
    with pytest.raises(ArgumentError, match=r"encoded.*T\.Decode\(\) first"):
        T.Pipeline([op])(kind(jpeg()), keys=KEY)


@pytest.mark.parametrize(
    "ops", [[T.RandomResizedCrop(8), T.ToLayout()], [T.Resize(8)], [T.HorizontalFlip(p=0)]], ids=repr
)
def test_a_dataset_of_a_pipeline_without_decode_asks_for_it(ops: list[Any]) -> None:
    """At once: a store's images are always encoded."""
    with pytest.raises(ArgumentError, match=r"encoded.*T\.Decode\(\) first"):
        ps.StoreDataset(MemoryStore(), ("image", "label"), T.Pipeline(ops))


def test_a_callable_may_decode() -> None:
    """What stands first gets what there is; the ops behind it get what it returns."""

    def read(encoded: Any) -> Any:
        return np.array(Image.open(io.BytesIO(encoded)))

    dataset = ps.StoreDataset(MemoryStore(), "image", T.Pipeline([read, T.CenterCrop(8)]))

    assert dataset[0].shape == (8, 8, 3)


class Opened(T.Op):
    """A user's op that decodes."""

    takes_pixels = False

    def image(self, image: Any, params: Any) -> Any:
        """Through Pillow."""
        return Image.open(io.BytesIO(image))


def test_an_op_may_say_that_it_takes_no_pixels() -> None:
    """Then it gets what there is; without saying so it is asked for Decode as all are."""

    class Pixels(Opened):
        takes_pixels = True

    dataset = ps.StoreDataset(MemoryStore(), "image", T.Pipeline([Opened(), T.CenterCrop(8)]))

    assert dataset[0].shape == (8, 8, 3)
    with pytest.raises(ArgumentError, match="Decode"):
        T.Pipeline([Pixels()])(jpeg())


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "1", "LA", "CMYK", "I;16"])
def test_a_pil_image_is_its_pixels(mode: str) -> None:
    """Of any mode, as Decode would have given them; the image itself is left as it was."""
    image = Image.fromarray(pixels())
    if mode == "I;16":
        image = Image.fromarray(np.arange(320, dtype=np.uint16).reshape(16, 20) * 200)
    else:
        image = image.convert(mode)
    if mode in {"L", "P"}:
        image.info["transparency"] = 3
    info = dict(image.info)
    before = image.tobytes()
    file = io.BytesIO()
    image.save(file, "TIFF" if mode == "CMYK" else "PNG")

    found = CROP(image, keys=KEY)

    np.testing.assert_array_equal(found, CROP(ps.decode(file.getvalue()), keys=KEY))
    assert image.tobytes() == before
    assert image.info == info


def test_pil_images_stand_anywhere_in_a_sample() -> None:
    """As an image and as a mask, whose values are kept."""
    classes = Image.fromarray(np.arange(320, dtype=np.uint16).reshape(16, 20) % 7 * 1000)
    sample = {"image": Image.fromarray(pixels()), "mask": classes}

    result = T.Pipeline([T.HorizontalFlip(p=1)])(sample)

    np.testing.assert_array_equal(result["image"], pixels()[:, ::-1])
    np.testing.assert_array_equal(result["mask"], np.asarray(classes)[:, ::-1])


def test_a_pil_mask_of_several_channels_is_refused() -> None:
    """As an encoded one."""
    with pytest.raises(ps.DecodeError, match="one channel"):
        T.Pipeline([T.HorizontalFlip()])({"image": pixels(), "mask": Image.fromarray(pixels())})


def test_a_callable_gets_the_pil_image_itself() -> None:
    """Only ops that work on pixels want an array; what a callable returns is brought to one for them."""
    seen: list[Any] = []

    def turn(image: Any) -> Any:
        seen.append(type(image))
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

    found = T.Pipeline([turn, T.CenterCrop(8)])(Image.fromarray(pixels()))

    np.testing.assert_array_equal(found, T.Pipeline([T.CenterCrop(8)])(pixels()[:, ::-1]))
    assert issubclass(seen[0], Image.Image)


def test_decode_refuses_what_is_decoded() -> None:
    """Each with what to do: leave Decode out, or read the file."""
    torch = pytest.importorskip("torch")

    with pytest.raises(ArgumentError, match="PIL image, which is decoded already; leave Decode out"):
        DECODE(Image.fromarray(pixels()))
    with pytest.raises(ArgumentError, match=r"a tensor of shape \(3, 16, 20\), which is decoded already"):
        DECODE(torch.zeros(3, 16, 20, dtype=torch.uint8))
    for path in ("photos/1.jpg", Path("photos/1.jpg")):
        with pytest.raises(ArgumentError, match=r"path.*read_bytes\(\)"):
            DECODE(path)
        with pytest.raises(ArgumentError, match=r"path.*read_bytes\(\)"):
            ps.decode(path)


def test_a_tensor_is_refused_with_the_way_to_an_array() -> None:
    """CHW is torch's order; guessing which is which would turn some pictures."""
    torch = pytest.importorskip("torch")

    with pytest.raises(ArgumentError, match=r"HWC.*permute\(1, 2, 0\)\.numpy\(\)"):
        CROP(torch.zeros(3, 16, 20, dtype=torch.uint8))


@pytest.mark.parametrize("op", STARTS, ids=lambda op: type(op).__name__)
def test_a_chw_array_is_refused(op: T.Op) -> None:
    """A flip along the wrong axis would be a silent mistake."""
    with pytest.raises(ArgumentError, match=r"HWC.*\(3, 16, 20\).*transpose"):
        T.Pipeline([op])(np.zeros((3, 16, 20), np.uint8))


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (0, 0), (7,), (2, 3, 4, 3)])
@pytest.mark.parametrize("op", [T.Resize(8), T.RandomResizedCrop(8), T.HorizontalFlip(p=0), T.ToLayout()], ids=repr)
def test_an_array_that_is_no_image_is_refused(shape: tuple[int, ...], op: T.Op) -> None:
    """The error says its shape."""
    with pytest.raises(ArgumentError, match=rf"\({', '.join(map(str, shape))},?\)"):
        T.Pipeline([op])(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("value", [None, 3, "photo.jpg", [[1, 2]], object()])
def test_what_is_no_image_at_all_is_refused(value: Any) -> None:
    """The error names the type."""
    with pytest.raises(ArgumentError, match=f"got {type(value).__name__}"):
        CROP((value, 1))


def test_programs_refuse_the_same() -> None:
    """The compiled pipeline says what the pipeline says."""
    program = T.Pipeline([T.RandomResizedCrop(8)]).compile("image")

    for value, words in ((jpeg(), "Decode"), (np.zeros((3, 16, 20), np.uint8), "HWC")):
        with pytest.raises(ArgumentError, match=words):
            program.run([value], KEY)


# what a pipeline is made of


def test_an_op_s_class_is_not_an_op() -> None:
    """The brackets are missing."""
    with pytest.raises(ArgumentError, match=r"the class Decode; write T\.Decode\(\)"):
        T.Pipeline([T.Decode, T.CenterCrop(8)])


def test_ops_are_a_list() -> None:
    """One op, or several without brackets around them, are not."""
    pipeline: Any = T.Pipeline
    for arguments in ([T.Decode()], [T.Decode(), T.CenterCrop(8)]):
        with pytest.raises(ArgumentError, match=r"list of ops.*T\.Pipeline\(\[T\.Decode\(\), ...\]\)"):
            pipeline(*arguments)


def test_a_pipeline_within_a_pipeline_is_its_ops() -> None:
    """They move targets and draw by their own places, as if they had been written there."""
    inner = T.Pipeline([T.HorizontalFlip(), T.RandomCrop(9)])
    nested, flat = T.Pipeline([T.HorizontalFlip(), inner]), T.Pipeline([T.HorizontalFlip(), *inner.ops])
    sample = {"image": pixels(), "boxes": [[1, 2, 9, 8]]}

    for index in range(20):
        keys = SampleKeys(0, 0, np.array([index]))
        found, expected = nested(sample, keys=keys), flat(sample, keys=keys)
        np.testing.assert_array_equal(found["image"], expected["image"])
        np.testing.assert_array_equal(found["boxes"], expected["boxes"])
    with pytest.raises(ArgumentError, match="kinds"):
        T.Pipeline([T.Pipeline([T.CenterCrop(8)], kinds=("image", "mask"))])


def test_torchvision_transforms_that_would_do_nothing_are_refused() -> None:
    """Those of v2 let arrays pass unchanged: behind an op they would never act."""
    v2 = pytest.importorskip("torchvision.transforms.v2")

    for transform in (v2.RandomHorizontalFlip(1.0), v2.Compose([v2.ColorJitter(0.4)])):
        with pytest.raises(ArgumentError, match=r"torchvision.*StoreDataset"):
            T.Pipeline([T.Decode(), transform])
    tensor = T.Pipeline([T.Decode(), v2.ToImage(), v2.RandomHorizontalFlip(1.0)])(jpeg())
    np.testing.assert_array_equal(tensor.permute(1, 2, 0).numpy(), ps.decode(jpeg())[:, ::-1])


# Normalize


@pytest.mark.parametrize("numbers", [0.5, [0.5], (0.5,), np.array([0.5]), np.float32(0.5)], ids=repr)
@pytest.mark.parametrize("size", [None, 8])
def test_one_number_normalizes_every_channel(numbers: Any, size: int | None) -> None:
    """As torchvision has it; alone, in a program and on floats."""
    ops: list[Any] = [] if size is None else [T.Resize((size, size))]
    one, three = (
        T.Pipeline([T.Decode(), *ops, normalize, T.ToLayout()])
        for normalize in (T.Normalize(numbers, numbers), T.Normalize([0.5] * 3, [0.5] * 3))
    )

    np.testing.assert_array_equal(one(jpeg()), three(jpeg()))
    np.testing.assert_array_equal(one.compile("image").run([jpeg()], KEY)[0], three(jpeg()))
    floats = T.Pipeline([T.Normalize(numbers, numbers)])(np.float32(pixels()))
    np.testing.assert_allclose(floats, (np.float32(pixels()) - 0.5) / 0.5)


@pytest.mark.parametrize("shape", [(16, 20), (16, 20, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_one_channel_is_normalized_by_one_number(shape: tuple[int, ...], dtype: Any) -> None:
    """HW and HWC; three numbers are refused, by how many channels there are."""
    image = (np.arange(320) % 256).astype(dtype).reshape(shape)
    scaled = image / np.float32(255) if dtype is np.uint8 else image

    found = T.Pipeline([T.Normalize(0.25, 0.5)])(image)

    assert found.shape == shape
    np.testing.assert_allclose(found, (scaled - 0.25) / 0.5, atol=1e-5)
    with pytest.raises(ArgumentError, match=r"3 channels.*1 channel.*one number"):
        T.Pipeline([T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)])(image)


def test_gray_pictures_become_batches_of_one_channel() -> None:
    """Grayscale(1), Normalize by one number, ToLayout: (1, H, W), also where batches are filled."""
    pipeline = T.Pipeline([T.Decode(), T.Resize((8, 9)), T.Grayscale(1), T.Normalize(0.5, 0.5), T.ToLayout()])
    loader = ps.DataLoader(ps.StoreDataset(MemoryStore(), "image", pipeline), 4)

    batch = next(iter(loader))

    assert batch.shape == (4, 1, 8, 9)
    assert batch.dtype == np.float32


@pytest.mark.parametrize(
    ("mean", "std"),
    [([0.5, 0.5], [0.5, 0.5]), ([0.5], [0.5] * 3), (0.5, 0), (0.5, -1), ("a", "b"), ([], []), (None, 1)],
)
def test_normalize_refuses_other_numbers(mean: Any, std: Any) -> None:
    """The error says how many there may be."""
    with pytest.raises(ArgumentError, match="one number or three"):
        T.Normalize(mean, std)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("RandomHorizontalFlip", "T.HorizontalFlip"),
        ("ToTensor", 'T.ToLayout("CHW", "float32")'),
        ("ToTensorV2", "T.ToLayout"),
        ("Compose", "T.Pipeline"),
        ("HueSaturationValue", "T.RandomHSV"),
    ],
)
def test_names_of_other_libraries_say_which_op_is_meant(name: str, own: str) -> None:
    """An AttributeError, as Python's own, that names penstock's op; one that nobody knows has no advice."""
    with pytest.raises(AttributeError, match=re.escape(f"no attribute {name!r}; what {name} does")) as caught:
        getattr(T, name)

    assert own in str(caught.value)
    assert not hasattr(T, "nonsense")


def test_ops_that_are_advised_are_there() -> None:
    """Each is a name of this package, and none of the others is."""
    for other, own in OP_NAMES.items():
        assert hasattr(T, own.partition("(")[0].partition(".")[0])
        assert other not in T.__all__
