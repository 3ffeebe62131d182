"""Which code that reads images is recognised, with which pixels, and what is said of the rest."""

from __future__ import annotations

import logging
import pickle
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from PIL import Image  # noqa: E402  # behind the skip
from torchvision import datasets  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

import penstock.torch as pt  # noqa: E402
from penstock.datasets.base import spec_of  # noqa: E402
from penstock.errors import SampleError  # noqa: E402  # as above
from penstock.torch.vision.recognise import NotRecognisedError  # noqa: E402
from penstock.torch.vision.recognise_reading import recognise_getitem, recognise_loader  # noqa: E402
from tests.torch.vision import readers  # noqa: E402
from tests.torch.vision.gallery import gallery, picture  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")

FLOATS = v2.Compose([v2.ToImage(), v2.CenterCrop((24, 32)), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()])
RESIZED = v2.Compose([v2.ToImage(), v2.Resize((24, 32)), v2.ToPureTensor()])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gallery without what TorchCodec and torchvision refuse, and with photographs that are turned."""
    folder = gallery(tmp_path_factory.mktemp("readers"))
    for name in ("alpha.tif", "more/windows.bmp", "more/portable.ppm", "more/portable.pgm"):
        (folder / "dogs" / name).unlink()
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        picture(90, 60, orientation).save(folder / "cats" / f"turned{orientation}.jpg", exif=exif)
    return folder


def batches(dataset: Any, **options: Any) -> list[Any]:
    """Images and labels of an epoch."""
    return [torch.cat(column) for column in zip(*pt.DataLoader(dataset, 4, **options), strict=True)]


# loaders


@pytest.mark.parametrize("name", readers.READERS)
@pytest.mark.parametrize("transform", [FLOATS, RESIZED])
def test_a_loader_gives_the_pixels_of_its_library(root: Path, name: str, transform: Any) -> None:
    """Equal to the script's, or within one level where it is resized, filled and as single samples."""
    loader = readers.READERS[name]
    ours, theirs = (kind(root, transform, loader=loader) for kind in (pt.ImageFolder, datasets.ImageFolder))

    assert spec_of(ours) is not None
    images, labels = batches(ours)
    assert labels.tolist() == theirs.targets
    for i, image in enumerate(images):
        expected = theirs[i][0].float()
        bound = 1 if transform is RESIZED else 0
        assert float((image.float() - expected).abs().max()) <= bound, theirs.samples[i]
        assert torch.equal(ours[i][0], image)


@pytest.mark.parametrize("content", ["deep", "cut"])
@pytest.mark.parametrize("name", ["Pillow, a file", "torchvision", "TorchCodec", "OpenCV"])
def test_a_file_that_a_library_reads_otherwise_is_read_by_it(tmp_path: Path, name: str, content: str) -> None:
    """16 bits, which become 8 in several ways, and damage: result or error of the script's own code."""
    if name not in readers.READERS:
        pytest.skip(f"{name} is not installed")
    if name == "Pillow, a file" and content == "deep":
        pytest.skip("16-bit gray images are converted by their high byte, as documented")
    (tmp_path / "c").mkdir()
    if content == "deep":
        field = np.random.default_rng(0).integers(0, 1 << 16, (30, 40), np.uint16)
        Image.fromarray(field).save(tmp_path / "c" / "a.png")
    else:
        picture(90, 60, 1).save(tmp_path / "c" / "a.jpg")
        whole = (tmp_path / "c" / "a.jpg").read_bytes()
        (tmp_path / "c" / "a.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    loader = readers.READERS[name]
    ours, theirs = (kind(tmp_path, FLOATS, loader=loader) for kind in (pt.ImageFolder, datasets.ImageFolder))

    try:
        expected = theirs[0][0]
    except (OSError, RuntimeError):
        with pytest.raises((OSError, RuntimeError)):
            batches(ours)
    else:
        assert torch.equal(batches(ours)[0][0], expected)
        assert torch.equal(ours[0][0], expected)


def test_a_file_that_becomes_another_array_is_named(tmp_path: Path) -> None:
    """torchvision keeps 16 bits, which a batch of 8 bits does not hold: nothing is rounded silently."""
    (tmp_path / "c").mkdir()
    Image.fromarray(np.full((30, 40), 500, np.uint16)).save(tmp_path / "c" / "a.png")
    loader = readers.READERS["torchvision"]
    transform = v2.Compose([v2.CenterCrop((24, 32)), v2.ToPureTensor()])

    with pytest.raises(SampleError, match=r"makes uint16 \(3, 24, 32\) of this file.*a\.png"):
        batches(pt.ImageFolder(tmp_path, transform, loader=loader))


def test_the_library_is_found_behind_any_form() -> None:
    """Which one reads decides about the Exif orientation, and about files that it decodes otherwise."""
    found = {name: recognise_loader(loader).reading for name, loader in readers.READERS.items()}

    for name, reading in found.items():
        assert reading.library == {"P": "PIL", "t": "torchvision", "T": "torchcodec", "O": "cv2"}[name[0]]


def test_steps_of_a_loader_come_before_the_transform(root: Path) -> None:
    """What a loader calls with the image is part of the transforms."""
    crop = v2.CenterCrop((20, 30))

    def load(path: str) -> Any:
        return crop(Image.open(path).convert("RGB"))

    ours, theirs = (kind(root, v2.PILToTensor(), loader=load) for kind in (pt.ImageFolder, datasets.ImageFolder))

    assert torch.equal(batches(ours)[0][3], theirs[3][0])


REFUSED = {
    readers.keep_channels: r'is not converted, so it keeps the channels of its file; add .convert\("RGB"\)',
    readers.keep_channels_too: r"line \d+ of readers.py, 'decode_image\(path\)': it has ''; .* with 'RGB'",
    readers.turn: r"line \d+ of readers.py, .*rotate\(90\).*: penstock does not know this use of the image",
    readers.scale: r"'image / 255': penstock does not know this use",
    readers.retry: "in a branch or a loop",
    readers.read_array: "that a known call reads",
    readers.cached: "is no function that penstock knows",
    readers.cached.__wrapped__: "or one with a decorator",
    Image.open: "is not converted",
    torchvision.io.decode_image: "penstock knows it with 'RGB', which gives three channels",
    len: "is no function that penstock knows",
}
if readers.cv2 is not None:
    REFUSED |= {readers.keep_blue_first: "blue, green, red", readers.read_deep: "it has '-1'"}


@pytest.mark.parametrize(("loader", "reason"), REFUSED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_another_loader_is_called_and_the_log_says_why(
    root: Path, loader: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is native, and the reason names the line."""
    with caplog.at_level(logging.INFO, "penstock.torch.vision"):
        assert spec_of(pt.ImageFolder(root, FLOATS, loader=loader)) is None

    with pytest.raises(NotRecognisedError, match=reason):
        recognise_loader(loader)
    assert "nothing is native: the loader: " in caplog.text


def test_a_function_without_source_is_not_recognised() -> None:
    """Code that was made by exec has no lines to read."""
    names: dict[str, Any] = {}
    exec("def load(path):\n    return open(path)", names)

    with pytest.raises(NotRecognisedError, match="source of load cannot be read"):
        recognise_loader(names["load"])


# datasets


OWN = [readers.InOnePlace, readers.ByMethod, readers.TorchvisionPhotos]
OWN += [readers.OpenCvPhotos] if readers.cv2 is not None else []
OWN += [readers.TorchCodecPhotos] if readers.decoders is not None else []


@pytest.mark.parametrize("kind", OWN)
def test_an_own_dataset_is_compiled(root: Path, kind: Any) -> None:
    """The same images and targets, filled, also through a Subset, a pickle, and single samples."""
    theirs = kind(datasets.ImageFolder(root).samples, FLOATS)

    ours = pt.compile(theirs)

    assert spec_of(ours) is not None
    images, labels = batches(ours, num_workers=2)
    assert labels.tolist() == [label for _, label in theirs.samples]
    assert labels.dtype == torch.int64
    for i, image in enumerate(images):
        assert torch.equal(image, theirs[i][0])
        assert torch.equal(ours[i][0], image)
    part = pt.compile(torch.utils.data.Subset(theirs, [3, 1]))
    assert torch.equal(batches(part)[0], images[[3, 1]])
    assert torch.equal(batches(pickle.loads(pickle.dumps(ours)))[0], images)


def test_the_condition_on_an_attribute_is_decided(root: Path) -> None:
    """A transform of the target is called, and an attribute that was None at the compilation is not."""
    theirs = readers.InOnePlace(datasets.ImageFolder(root).samples, FLOATS)
    theirs.target_transform = lambda label: label + 5

    labels = batches(pt.compile(theirs))[1]

    assert labels.tolist() == [label + 5 for _, label in theirs.samples]
    assert recognise_getitem(theirs).reading.steps == (FLOATS,)


def test_random_numbers_of_the_users_code_follow_the_sample(root: Path) -> None:
    """What ``__getitem__`` draws to choose a path depends on seed, epoch and index, with any number of workers."""

    class Drawn(readers.Photos):
        def __getitem__(self, index: int) -> Any:
            path, label = self.samples[random.randrange(len(self.samples))]
            return self.transform(Image.open(path).convert("RGB")), label

    compiled = pt.compile(Drawn(datasets.ImageFolder(root).samples, FLOATS))
    before = random.getstate()

    runs = [batches(compiled, seed=1, num_workers=workers) for workers in (0, 2)]

    assert torch.equal(runs[0][0], runs[1][0])
    assert runs[0][1].tolist() == runs[1][1].tolist()
    assert spec_of(compiled) is not None
    assert random.getstate() == before


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (readers.SizeToo, r"line \d+ of readers.py, 'image.size': penstock does not know this use of the image"),
        (readers.TakesTheNext, "the image is read or returned, .*in a branch or a loop"),
        (readers.ThreeValues, "one statement must return an image that a known call reads, and a target"),
        (readers.Alone, "must return an image that a known call reads, and a target"),
        (torch.utils.data.TensorDataset, "penstock does not know this class"),
    ],
)
def test_another_dataset_comes_back_and_the_log_says_why(
    root: Path, kind: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """``compile`` returns the dataset itself."""
    samples = datasets.ImageFolder(root).samples
    theirs = kind(torch.zeros(3)) if kind is torch.utils.data.TensorDataset else kind(samples, FLOATS)

    with caplog.at_level(logging.INFO, "penstock.torch.vision"):
        assert pt.compile(theirs) is theirs

    assert re.search(f"nothing is native: .*{reason}", caplog.messages[-1])
