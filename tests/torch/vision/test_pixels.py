"""Pixels are torchvision's within one level: for every transform, every kind of image, and any crop box."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from PIL import Image  # noqa: E402  # behind the skip
from torchvision.transforms import InterpolationMode, v2  # noqa: E402
from torchvision.transforms import functional as F  # noqa: E402
from torchvision.transforms import transforms as v1  # noqa: E402

import penstock.torch  # noqa: E402
from penstock import transforms as T  # noqa: E402
from penstock.sample import SampleKeys  # noqa: E402
from penstock.torch.vision.recognise import recognise  # noqa: E402
from tests.torch.vision.gallery import gallery, levels  # noqa: E402

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
ONE = {torch.uint8: 1, torch.float32: 1.001, torch.float16: 1.13}  # a level, and what the dtype rounds

DETERMINISTIC: dict[str, Any] = {
    "evaluation": v1.Compose([v1.Resize(70), v1.CenterCrop(64), v1.ToTensor()]),
    "evaluation v2": v2.Compose(
        [v2.Resize(70), v2.CenterCrop(64), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()]
    ),
    "evaluation on tensors": v2.Compose([v2.PILToTensor(), v2.Resize(70), v2.CenterCrop(64)]),
    "evaluation on images": v2.Compose([v2.ToImage(), v2.Resize((40, 50)), v2.ToDtype(torch.float32, scale=True)]),
    "evaluation on tensors, v1": v1.Compose(
        [v1.PILToTensor(), v1.Resize((33, 45)), v1.ConvertImageDtype(torch.float32)]
    ),
    "sequential": torch.nn.Sequential(v1.Resize([40]), v2.CenterCrop((30, 50)), v2.PILToTensor()),
    "bicubic": v1.Compose([v1.Resize(31, InterpolationMode.BICUBIC), v1.PILToTensor()]),
    "lanczos": v2.Compose([v2.Resize((90, 20), "lanczos"), v2.PILToTensor()]),
    "box": v1.Compose([v1.Resize((21, 33), InterpolationMode.BOX), v1.PILToTensor()]),
    "enlarged": v1.Compose([v1.Resize((401, 307)), v1.PILToTensor()]),
    "max_size": v1.Compose([v1.Resize(40, max_size=55), v1.PILToTensor()]),
    "padded by the crop": v1.Compose([v1.CenterCrop((150, 77)), v1.ToTensor()]),
    "padded on a tensor": v1.Compose([v1.ToTensor(), v1.CenterCrop((150, 77))]),
    "mirrored": v1.Compose([v1.RandomHorizontalFlip(1.0), v1.Resize((45, 54)), v1.PILToTensor()]),
    "both ways": v2.Compose(
        [v2.Resize((45, 54)), v2.RandomVerticalFlip(1.0), v2.RandomHorizontalFlip(1.0), v2.ToImage()]
    ),
    "mirrored tensor": v1.Compose([v1.ToTensor(), v1.RandomVerticalFlip(1.0), v1.RandomHorizontalFlip(0.0)]),
    "half": v2.Compose([v2.Resize((30, 30)), v2.ToImage(), v2.ToDtype(torch.float16, scale=True)]),
    "whole image": v1.ToTensor(),
    "preset": torchvision.transforms._presets.ImageClassification(
        crop_size=48, resize_size=52, mean=(0,) * 3, std=(1,) * 3
    ),
}
SIZES_OF_THEIR_OWN = {"whole image", "bicubic", "max_size", "mirrored tensor"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gallery."""
    return gallery(tmp_path_factory.mktemp("gallery"))


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_every_kind_of_image_is_torchvisions(root: Path, name: str) -> None:
    """Transforms without random numbers give torchvision's pixels within one level, for every mode, format and size."""
    transform = DETERMINISTIC[name]
    ours, theirs = (f.ImageFolder(root, transform) for f in (penstock.torch, torchvision.datasets))

    worst = {path: levels(ours[i][0], theirs[i][0]) for i, (path, _) in enumerate(theirs.samples)}

    assert recognise(transform).remaining == ()
    assert {path: level for path, level in worst.items() if level > ONE[ours[0][0].dtype]} == {}


# Not "bccd": a folder without images is no class.
@pytest.mark.parametrize("photographs_dir", ["own", pytest.param("imagenet", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize(("mean", "std"), [(MEAN, STD), ([0.5], [0.25])])
def test_photographs_are_torchvisions(photographs_dir: Path, mean: Any, std: Any) -> None:
    """On photographs the evaluation transform agrees within one level, also after Normalize."""
    transform = v1.Compose([v1.Resize(256), v1.CenterCrop(224), v1.ToTensor(), v1.Normalize(mean, std)])
    ours, theirs = (f.ImageFolder(photographs_dir, transform) for f in (penstock.torch, torchvision.datasets))
    deviation = torch.tensor(std).view(-1, 1, 1)

    worst = max(levels(ours[i][0] * deviation, theirs[i][0] * deviation) for i in range(0, len(ours), 5))

    assert 0 < worst < 1.01


@pytest.mark.parametrize("name", [name for name in DETERMINISTIC if name not in SIZES_OF_THEIR_OWN])
def test_filling_is_getting(root: Path, name: str) -> None:
    """Filled rows equal single samples bit for bit, at any row."""
    ours = penstock.torch.ImageFolder(root, DETERMINISTIC[name])
    spec: Any = ours.spec()
    indices, rows = np.arange(len(ours))[::-1].copy(), np.roll(np.arange(len(ours)), 3)
    out = tuple(np.zeros((len(ours), *leaf.shape), leaf.dtype) for leaf in spec)

    ours.fill(indices, out, SampleKeys(0, 0, indices), rows)

    for index, row in zip(indices.tolist(), rows.tolist(), strict=True):
        image, target = ours[index]
        np.testing.assert_array_equal(out[0][row], image.numpy())
        assert out[1][row] == target


SCALES = {"scale": (0.2, 0.9), "ratio": (0.5, 1.7)}


@pytest.mark.parametrize(
    ("transform", "on_tensor"),
    [
        (v1.Compose([v1.RandomResizedCrop((50, 41), **SCALES), v1.PILToTensor()]), False),
        (v1.Compose([v1.RandomResizedCrop(33, interpolation=InterpolationMode.BICUBIC), v1.PILToTensor()]), False),
        (v2.Compose([v2.RandomResizedCrop((50, 41), interpolation="lanczos", **SCALES), v2.PILToTensor()]), False),
        (v2.Compose([v2.PILToTensor(), v2.RandomResizedCrop((50, 41), **SCALES)]), True),
        (v1.Compose([v1.PILToTensor(), v1.RandomResizedCrop(70, **SCALES)]), True),
    ],
)
def test_a_crop_box_gives_torchvisions_pixels(root: Path, transform: Any, on_tensor: bool) -> None:
    """For the drawn box, the pixels are those of ``torchvision.transforms.functional.resized_crop``."""
    ours = penstock.torch.ImageFolder(root, transform)
    spec: Any = ours.spec()
    crop = recognise(transform).ops[0]
    step = next(t for t in transform.transforms if "Crop" in type(t).__name__)
    out = (np.zeros((1, *spec[0].shape), np.uint8), np.zeros(1, np.int64))

    for index, (path, _) in enumerate(ours.samples):
        image = ours.loader(path)
        for epoch in range(4):
            keys = SampleKeys(5, epoch, np.array([index]))
            ours.fill(np.array([index]), out, keys)
            left, top, width, height = crop.draw(keys, np.array([image.size], np.int32), 1)[0].tolist()
            whole = F.pil_to_tensor(image) if on_tensor else image
            mode = InterpolationMode(step.interpolation)
            expected = F.resized_crop(whole, top, left, height, width, list(step.size), mode, antialias=True)
            expected = expected if on_tensor else F.pil_to_tensor(expected)

            assert levels(torch.from_numpy(out[0][0]), expected) <= 1, (path, epoch)


@pytest.mark.parametrize("module", [v1, v2])
@pytest.mark.parametrize("how", [{}, {"fill": (9, 99, 199)}, {"padding_mode": "edge"}])
def test_a_padded_crop_is_torchvisions(root: Path, module: Any, how: dict[str, Any]) -> None:
    """RandomCrop's window is in torchvision's padded image, with the order of padding of v1 and v2."""
    padding = (3, 9, 14, 1)
    transform = module.Compose([module.RandomCrop((90, 70), padding, pad_if_needed=True, **how), module.PILToTensor()])
    ours = penstock.torch.ImageFolder(root, transform)
    crop = recognise(transform).ops[0]
    out = (np.zeros((1, 3, 90, 70), np.uint8), np.zeros(1, np.int64))

    for index, (path, _) in enumerate(ours.samples):
        image = ours.loader(path)
        keys = SampleKeys(1, 0, np.array([index]))
        ours.fill(np.array([index]), out, keys)
        left, top, _, _ = crop.draw(keys, np.array([image.size], np.int32), 1)[0].tolist()
        padded = F.pad(image, list(padding), **how)
        more = [max(70 - padded.width, 0), max(90 - padded.height, 0)]
        expected = F.crop(F.pad(padded, more, **how), top + padding[1] + more[1], left + padding[0] + more[0], 90, 70)

        np.testing.assert_array_equal(out[0][0], F.pil_to_tensor(expected).numpy())


@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
@pytest.mark.parametrize("on_tensor", [False, True])
def test_a_mirrored_border_is_torchvisions(root: Path, mode: str, on_tensor: bool) -> None:
    """A mirrored border has torchvision's pixels, on PIL images and on tensors."""
    first = [v1.PILToTensor()] if on_tensor else []
    last = [] if on_tensor else [v1.PILToTensor()]
    ours = penstock.torch.ImageFolder(root, v1.Compose([*first, v1.RandomCrop(40, 15, padding_mode=mode), *last]))
    ours.samples = [(path, target) for path, target in ours.samples if min(ours.loader(path).size) > 16]
    crop = T.RandomCrop(40, 15)
    out = (np.zeros((1, 3, 40, 40), np.uint8), np.zeros(1, np.int64))

    for index, (path, _) in enumerate(ours.samples):
        image = ours.loader(path)
        keys = SampleKeys(1, 0, np.array([index]))
        ours.fill(np.array([index]), out, keys)
        left, top, _, _ = crop.draw(keys, np.array([image.size], np.int32), 1)[0].tolist()
        padded = F.pad(F.pil_to_tensor(image) if on_tensor else image, 15, padding_mode=mode)
        expected = F.crop(padded, top + 15, left + 15, 40, 40)

        found = torch.from_numpy(out[0][0])
        assert torch.equal(found, expected if on_tensor else F.pil_to_tensor(expected)), path


def distance(a: Any, b: Any) -> float:
    """The Kolmogorov-Smirnov statistic: the largest distance of two empirical distributions."""
    a, b = np.sort(a), np.sort(b)
    both = np.concatenate([a, b])
    found = np.searchsorted(a, both, "right") / len(a) - np.searchsorted(b, both, "right") / len(b)
    return float(np.abs(found).max())


@pytest.mark.parametrize("module", [v1, v2])
@pytest.mark.parametrize("size", [(500, 375), (120, 400)])
def test_crop_boxes_are_distributed_as_torchvisions(module: Any, size: tuple[int, int]) -> None:
    """Area, shape and position of the boxes have torchvision's distribution (two samples, p = 0.001, seeded)."""
    torch.manual_seed(0)
    crop = module.RandomResizedCrop(64, **SCALES)
    image = Image.new("RGB", size)
    theirs = np.array([crop.get_params(image, crop.scale, crop.ratio) for _ in range(3000)])[:, [1, 0, 3, 2]]

    op = recognise(crop).ops[0]
    ours = op.draw(SampleKeys(3, 0, np.arange(3000)), np.full((3000, 2), size, np.int32), 1)

    limit = 1.95 * math.sqrt(2 / 3000)
    assert distance(ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3]) < limit
    assert distance(ours[:, 2] / ours[:, 3], theirs[:, 2] / theirs[:, 3]) < limit
    for axis in (0, 1):
        places = [(w[:, axis] + 0.5) / (size[axis] - w[:, 2 + axis] + 1) for w in (ours, theirs)]
        assert distance(*places) < limit


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 1.0])
def test_flips_have_their_probability(p: float) -> None:
    """The frequency of a flip is ``p``, and is independent of another flip."""
    ops = recognise(v1.Compose([v1.RandomHorizontalFlip(p), v1.RandomVerticalFlip(p)])).ops
    keys = SampleKeys(3, 0, np.arange(4000))

    across, down = (op.draw(keys, np.zeros((4000, 2), np.int32), 1 + i) for i, op in enumerate(ops))

    assert abs(across.mean() - p) < 0.03
    assert abs((across & down).mean() - p * p) < 0.03


@pytest.mark.parametrize("mode", ["bicubic", "lanczos"])
def test_why_tensors_are_resized_bilinearly_only(mode: str) -> None:
    """Pillow runs the cheaper pass first, torch the horizontal one, so clipped values differ."""
    noise = np.random.default_rng(0).integers(0, 256, (224, 62, 3), dtype=np.uint8)
    image = Image.fromarray(noise)

    tensor = v2.functional.resize(v2.functional.pil_to_tensor(image), [177, 182], interpolation=mode, antialias=True)
    pillow = v2.functional.pil_to_tensor(v2.functional.resize(image, [177, 182], interpolation=mode))

    assert levels(tensor, pillow) > 1
