"""Every op on images of every kind, from bytes to row: Pillow's and NumPy's result, in every value.

An ordinary run takes a few of our own, `make test-slow` all of the collections. With `--log-cli-level=INFO` each test
says how many results it compared, how many pictures were too small for the op, and the largest difference.
"""

from __future__ import annotations

import io
import logging
import random
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pytest
import skimage
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from penstock import transforms as T
from penstock.bfloat16 import from_floats, to_floats
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys
from tests.conformance.test_ops import OPS, RESIZING
from tests.effort import IS_PART
from tests.hostile.gallery import write_gallery
from tests.photographs import write_photographs
from tests.transforms.collections_of_images import images, pillow
from tests.transforms.test_blur import exact_blur

Pixels = NDArray[np.uint8]
Images = dict[str, bytes]

LOG: Final = logging.getLogger(__name__)
NORMALIZE: Final = T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD)
FILTERS: Final = ("box", "bilinear", "bicubic", "lanczos")
COLLECTIONS: Final = ("imagenet", "bccd", "hostile-jpeg", "foreign")


@pytest.fixture(params=["own", pytest.param("all", marks=pytest.mark.slow)])
def every(request: pytest.FixtureRequest) -> Images:
    """Name and bytes of the images that a test runs over."""
    if request.param == "own":
        return cast("Images", request.getfixturevalue("own_images"))
    data_dir: Path = request.getfixturevalue("data_dir")
    found: Images = {}
    for folder in COLLECTIONS:
        found |= images(data_dir, folder)
    if not found:
        pytest.skip("the collections hold no images")
    share = zlib.crc32(request.node.name.encode()) % 4  # of each test another quarter
    return dict(list(found.items())[share::4]) if IS_PART else found


@pytest.fixture(scope="module")
def own_images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """Photographs, malformed files that decode, and PNG files."""
    photographs = write_photographs(tmp_path_factory.mktemp("photographs"), per_class=1)
    malformed = write_gallery(tmp_path_factory.mktemp("malformed"))
    return images(photographs, ".", 8) | images(malformed, ".", 4) | images(Path(skimage.__file__).parent, "data", 3)


class Compared:
    """What a test has compared."""

    def __init__(self, tolerance: float = 0) -> None:
        self.tolerance = tolerance
        self.images, self.refused, self.worst = 0, 0, 0.0

    def __call__(self, name: str, found: NDArray[Any], expected: Any) -> None:
        """Every value, the shape and the dtype."""
        expected = np.asarray(expected)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), name
        difference = 0.0
        if not np.array_equal(found, expected):
            difference = float(np.abs(found.astype(np.float64) - expected.astype(np.float64)).max())
        assert difference <= self.tolerance, f"{name}: {difference}"
        self.worst = max(self.worst, difference)
        self.images += 1

    def tell(self) -> None:
        """Into the log; none compared is a failure."""
        assert self.images
        LOG.info("%d compared, %d too small, largest difference %g", self.images, self.refused, self.worst)


def pixels_of(file: bytes) -> Pixels:
    """Pillow's, which every oracle begins with."""
    pixels = pillow(file)
    assert pixels is not None
    return pixels


def key(number: int) -> SampleKeys:
    """Another one for each image."""
    return SampleKeys(17, 1, np.array([number]))


def made(file: bytes, number: int, *ops: T.Op) -> NDArray[Any]:
    """The row that the compiled pipeline makes of the file."""
    row: NDArray[Any] = T.Pipeline([T.Decode(), *ops]).compile("image").run([file], key(number))[0]
    return row


def any_region(pixels: Pixels, rng: random.Random) -> tuple[int, int, int, int]:
    """A part of a picture."""
    height, width = pixels.shape[:2]
    x0, y0 = rng.randrange(width), rng.randrange(height)
    return x0, y0, rng.randint(x0 + 1, width), rng.randint(y0 + 1, height)


def reduced(file: bytes, scale: int) -> Pixels:
    """By libjpeg's own scaling; what is no JPEG by Pillow's averages."""
    image = Image.open(io.BytesIO(file))
    if image.draft(None, (image.width // scale, image.height // scale)) is None:
        return np.asarray(image.convert("RGB").reduce(scale))
    return np.asarray(image.convert("RGB"))


def test_decoding(every: Images) -> None:
    """The whole picture and two regions; the same at a half, a quarter and an eighth of the size."""
    compared, rng = Compared(), random.Random(1)

    for name, file in every.items():
        pixels = pixels_of(file)
        compared(name, T.decode(file), pixels)
        for scale in (1, 2, 4, 8):
            if min(pixels.shape[:2]) < scale:
                continue
            expected = pixels if scale == 1 else reduced(file, scale)
            compared(name, T.decode(file, scale=scale), expected)
            for _ in range(2):
                x0, y0, x1, y1 = region = any_region(pixels, rng)
                rows, columns = slice(y0 // scale, -(-y1 // scale)), slice(x0 // scale, -(-x1 // scale))
                compared(f"{name} {region}", T.decode(file, region, scale), expected[rows, columns])

    compared.tell()


@pytest.mark.parametrize("op", [op for op in OPS if not (op.reads_boxes or op.removes_objects)], ids=repr)
def test_every_op_from_the_bytes(every: Images, op: T.Op) -> None:
    """A compiled pipeline makes of a file what the op's specification makes of Pillow's pixels; a resize, nearly."""
    compared = Compared(1 if isinstance(op, RESIZING) else 0)

    for number, (name, file) in enumerate(every.items()):
        pixels = pixels_of(file)
        if isinstance(op, T.Decode):
            image = Image.open(io.BytesIO(file)).convert("RGB")
            compared(name, made(file, number), ImageOps.exif_transpose(image) if op.orient else image)
            continue
        try:
            params = op.draw(key(number), np.array([pixels.shape[1::-1]], np.int32), 1)[0]
            expected = op.image(pixels, params)
        except ArgumentError:  # a picture smaller than the crop
            with pytest.raises(ArgumentError):
                made(file, number, op)
            compared.refused += 1
            continue
        compared(name, made(file, number, op), expected)

    compared.tell()


def turned_hue(image: Image.Image) -> Image.Image:
    """A fifth of the circle on, in Pillow's eight bits."""
    hue, *rest = image.convert("HSV").split()
    return Image.merge("HSV", [hue.point([(value + 51) % 256 for value in range(256)]), *rest]).convert("RGB")


def framed(image: Image.Image) -> Image.Image:
    """Resized into 90 x 120, its shape kept, on gray."""
    frame = Image.new("RGB", (120, 90), (114, 114, 114))
    factor = min(120 / image.width, 90 / image.height)
    width, height = (max(1, round(side * factor)) for side in image.size)
    frame.paste(image.resize((width, height), Image.Resampling.BILINEAR), ((120 - width) // 2, (90 - height) // 2))
    return frame


ORACLES: Final[Mapping[str, tuple[T.Op, Callable[[Image.Image], Any]]]] = {
    "brightness": (T.ColorJitter(brightness=(1.3, 1.3)), lambda image: ImageEnhance.Brightness(image).enhance(1.3)),
    "contrast": (T.ColorJitter(contrast=(0.6, 0.6)), lambda image: ImageEnhance.Contrast(image).enhance(0.6)),
    "saturation": (T.ColorJitter(saturation=(1.7, 1.7)), lambda image: ImageEnhance.Color(image).enhance(1.7)),
    "hue": (T.ColorJitter(hue=(0.2, 0.2)), turned_hue),
    "gray": (T.Grayscale(), lambda image: image.convert("L").convert("RGB")),
    "posterize": (T.Posterize(3, 1), lambda image: ImageOps.posterize(image, 3)),
    "solarize": (T.Solarize(100, 1), lambda image: ImageOps.solarize(image, 100)),
    "equalize": (T.Equalize(1), ImageOps.equalize),
    "autocontrast": (T.AutoContrast(1), ImageOps.autocontrast),
    "invert": (T.Invert(1), ImageOps.invert),
    "sharpness": (T.Sharpness(2.5, 1), lambda image: ImageEnhance.Sharpness(image).enhance(2.5)),
    "horizontal flip": (T.HorizontalFlip(1), ImageOps.mirror),
    "vertical flip": (T.VerticalFlip(1), ImageOps.flip),
    "rotate": (T.RandomRotation((33, 33), fill=(9, 80, 200)), lambda image: image.rotate(33, fillcolor=(9, 80, 200))),
    "rotate, bilinear": (
        T.RandomRotation((-8, -8), "bilinear"),
        lambda image: image.rotate(-8, Image.Resampling.BILINEAR),
    ),
    "pad": (T.Pad((3, 5), (1, 2, 3)), lambda image: ImageOps.expand(image, (3, 5, 3, 5), (1, 2, 3))),
    "pad, edge": (T.Pad(4, mode="edge"), lambda image: np.pad(np.asarray(image), ((4, 4), (4, 4), (0, 0)), "edge")),
    "pad, reflect": (
        T.Pad(6, mode="reflect"),
        lambda image: np.pad(np.asarray(image), ((6, 6), (6, 6), (0, 0)), "reflect"),
    ),
    "letterbox": (T.Letterbox((90, 120)), framed),
}
"""An op that draws nothing but what is said here, and what does the same, none of it ours."""


@pytest.mark.parametrize("case", ORACLES)
def test_ops_are_pillows(every: Images, case: str) -> None:
    """From its bytes a picture becomes what Pillow's own function makes of it; within a level where it is resized."""
    op, oracle = ORACLES[case]
    compared = Compared(1 if isinstance(op, RESIZING) else 0)

    for number, (name, file) in enumerate(every.items()):
        compared(name, made(file, number, op), oracle(Image.fromarray(pixels_of(file))))

    compared.tell()


def test_blur_is_exact(every: Images) -> None:
    """Each value is the sum in float64 of all its neighbours by their weights, rounded, within a hundredth."""
    compared = Compared(0.51)

    for number, (name, file) in enumerate(every.items()):
        blurred = made(file, number, T.GaussianBlur((9, 5), 1.4))
        compared(name, blurred.astype(np.float64), exact_blur(pixels_of(file), (9, 5), 1.4))

    compared.tell()


def test_erasing(every: Images) -> None:
    """A rectangle of the drawn place and size is black, the rest is the picture."""
    compared, op = Compared(), T.RandomErasing(1)

    for number, (name, file) in enumerate(every.items()):
        expected = pixels_of(file).copy()
        height, width = expected.shape[:2]
        x, y, w, h = (int(side) for side in op.draw(key(number), np.array([(width, height)], np.int32), 1)[0][:4])
        expected[y : y + h, x : x + w] = 0
        compared(name, made(file, number, op), expected)

    compared.tell()


@pytest.mark.parametrize("name_of_filter", FILTERS)
def test_crops_resized_are_pillows(every: Images, name_of_filter: str) -> None:
    """Any part of any picture, made smaller or larger by any filter, is within a level of Pillow's resize of it."""
    compared, method = Compared(1), getattr(Image.Resampling, name_of_filter.upper())

    for number, (name, file) in enumerate(every.items()):
        pixels = pixels_of(file)
        for height, width in ((112, 96), (31, 200)):
            op = T.RandomResizedCrop((height, width), (0.05, 1), filter=name_of_filter)
            x, y, w, h = op.draw(key(number), np.array([pixels.shape[1::-1]], np.int32), 1)[0].tolist()
            crop = Image.fromarray(pixels[y : y + h, x : x + w])
            compared(name, made(file, number, op), crop.resize((width, height), method))

    compared.tell()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_floats_are_numpys(every: Images, layout: str, dtype: str) -> None:
    """Normalised values are float32's product and sum: of a crop exactly, of a resize nearly; others round."""
    unit = 2**-6 if dtype == "bfloat16" else 0  # of values from 2 to 4
    exact, resized = Compared(), Compared(1.01 / 255 / min(T.IMAGENET_STD) + unit)
    for number, (name, file) in enumerate(every.items()):
        image = Image.fromarray(pixels_of(file))
        left, top = (round((side - 100) / 2) if side > 100 else -((100 - side) // 2) for side in image.size)
        crop = image.crop((left, top, left + 100, top + 100))
        small = image.resize((60, 50), Image.Resampling.BILINEAR)
        for op, compared, oracle in ((T.CenterCrop(100), exact, crop), (T.Resize((50, 60)), resized, small)):
            values = np.asarray(oracle).astype(np.float32) * NORMALIZE.scale + NORMALIZE.offset
            values = values.transpose(2, 0, 1) if layout == "CHW" else values
            expected = to_floats(from_floats(values)) if dtype == "bfloat16" else values.astype(dtype)
            compared(name, to_floats(made(file, number, op, NORMALIZE, T.ToLayout(layout, dtype))), expected)

    exact.tell()
    resized.tell()
