"""``DataLoader(decode="cuda")`` gives the batches of ``decode="cpu"``; the kernels run on the processor."""

from __future__ import annotations

import copy
import functools
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import penstock as ps
from penstock import _native
from penstock import transforms as T
from penstock.datasets import ConcatDataset, StoreDataset, Subset
from penstock.errors import ArgumentError, DecodeError
from penstock.torch import DataLoader
from penstock.torch.cuda import runtime
from penstock.torch.cuda.decoder import PacketDecoder
from tests.photographs import write_photographs
from tests.torch.cuda.conftest import HostRuntime
from tests.torch.cuda.pictures import jpegs, mutated

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

PIPELINES: dict[str, list[Any]] = {
    "train": [T.Decode(), T.RandomResizedCrop(40), T.HorizontalFlip(), T.Normalize(MEAN, STD), T.ToLayout("CHW")],
    "test": [T.Decode(), T.Resize(48), T.CenterCrop(40), T.Normalize(MEAN, STD), T.ToLayout("CHW", "float16")],
    "uint8": [T.Decode(orient=True), T.RandomResizedCrop(32), T.ToLayout("HWC", "uint8")],
    "scaled": [T.Decode(scale="auto"), T.RandomResizedCrop(24), T.ToLayout("CHW", "uint8")],
    "gray": [T.Decode(mode="L"), T.Resize((30, 30)), T.ToLayout("CHW", "uint8")],
    "jitter": [
        T.Decode(),
        T.RandomResizedCrop(40),
        T.HorizontalFlip(),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.GaussianBlur(5),
        T.Normalize(MEAN, STD),
        T.RandomErasing(p=0.5),
        T.ToLayout("CHW", "float16"),
    ],
    "randaugment": [T.Decode(mode="BGR"), T.Resize((33, 41)), T.RandAugment(), T.RandomErasing(), T.ToLayout("CHW")],
    "bfloat16": [
        T.Decode(),
        T.RandomResizedCrop(40),
        T.ColorJitter(0.4),
        T.Normalize(MEAN, STD),
        T.RandomErasing(p=0.5),
        T.ToLayout("CHW", "bfloat16"),
    ],
    "fused bfloat16": [T.Decode(), T.RandomResizedCrop(40), T.Normalize(MEAN, STD), T.ToLayout("HWC", "bfloat16")],
    "bicubic": [T.Decode(mode="BGR"), T.Resize((30, 36), filter="bicubic"), T.HorizontalFlip(), T.ToLayout("CHW")],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs, and images of every other kind that a folder may hold."""
    root = write_photographs(tmp_path_factory.mktemp("folder"), per_class=2)
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 256, (70, 90, 3), np.uint8))
    others = root / "others"
    others.mkdir()
    picture.save(others / "a.png")
    picture.save(others / "b.webp", lossless=True)
    picture.save(others / "c.jpg", progressive=True)
    picture.convert("CMYK").save(others / "d.jpg")
    picture.convert("L").save(others / "e.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(others / "f.jpg", exif=exif)
    for number, image in enumerate(jpegs().values()):
        (others / f"g{number}.jpg").write_bytes(image)
    return root


def dataset(folder: Path, pipeline: str | list[Any] = "train", **options: Any) -> Any:
    """Images and labels of a folder."""
    ops = PIPELINES[pipeline] if isinstance(pipeline, str) else pipeline
    return StoreDataset(ps.open(folder), ("image", "label"), T.Pipeline(ops), **options)


def both(make: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """Loaders that decode on the CPU and on the device."""
    options = {"batch_size": 8, "shuffle": True, "seed": 5, **options}
    return DataLoader(make(), **options), DataLoader(make(), decode="cuda", **options)


def assert_same(batches: Any, others: Any) -> int:
    """Compare batches; return how many samples there are."""
    count = 0
    for (images, labels), (own, own_labels) in zip(batches, others, strict=True):
        assert images.dtype == own.dtype
        assert torch.equal(images, own)
        assert torch.equal(labels, own_labels)
        count += len(own)
    return count


def is_corrupt(image: bytes) -> bool:
    """Whether the CPU cannot decode it."""
    try:
        _native.decode(image)
    except _native.CorruptError:
        return True
    return False


def is_unreadable(image: bytes) -> bool:
    """Whether neither the native decoder nor Pillow can decode it."""
    try:
        ps.decode(image)
    except DecodeError:
        return True
    return False


def test_a_pack_of_coefficients_is_decoded_on_the_device(
    folder: Path, host_runtime: HostRuntime, tmp_path: Path
) -> None:
    """Records, and in the same batches what cannot be one: the batches are those of the CPU."""
    ps.pack(folder, tmp_path / "pack.lmdb", transcode="coefficients")

    on_cpu, on_device = both(functools.partial(dataset, tmp_path / "pack.lmdb"), num_workers=2)

    assert assert_same(on_cpu, on_device) > 20
    assert "coefficients" in host_runtime.kernels.launched


@pytest.mark.parametrize(("pipeline", "num_workers"), [*((name, 2) for name in PIPELINES), ("train", 0), ("jitter", 0)])
def test_batches_are_the_same(folder: Path, host_runtime: HostRuntime, pipeline: str, num_workers: int) -> None:
    """JPEGs, PNGs, WebPs, progressive, CMYK, gray and turned images: every value of two epochs."""
    cpu, device = both(lambda: dataset(folder, pipeline), num_workers=num_workers)
    for _ in range(2):
        assert assert_same(cpu, device) == len(cpu.dataset)
    assert host_runtime.received == 2 * len(device)
    assert host_runtime.kernels.launched.count("entropy") >= len(device)
    assert device.stats()["transport"].items == 2 * len(device.dataset)


@pytest.mark.parametrize("overlap_epochs", [False, True])
def test_persistent_workers(folder: Path, host_runtime: HostRuntime, overlap_epochs: bool) -> None:
    """Epoch after epoch with the same threads, also where the next epoch is begun early, and after a break."""
    options = {"num_workers": 2, "persistent_workers": True, "overlap_epochs": overlap_epochs, "shuffle": False}
    cpu, device = both(lambda: dataset(folder, "jitter"), **options)
    for _ in range(2):
        assert assert_same(cpu, device) == len(cpu.dataset)
    for loader in (cpu, device):
        next(iter(loader))
    assert assert_same(cpu, device) == len(cpu.dataset)
    assert host_runtime.received >= 3 * len(device)
    for loader in (cpu, device):
        loader.close()


def test_subsets_and_concatenations(folder: Path, host_runtime: HostRuntime) -> None:
    """Datasets over datasets, ours and torch's, with a sampler of torch's."""
    wraps: list[Callable[[Any], Any]] = [
        lambda data: Subset(data, range(3, 20)),
        lambda data: ConcatDataset([data, Subset(data, [1, 2])]),
        lambda data: torch.utils.data.Subset(data, range(3, 20)),
    ]
    for wrap in wraps:
        cpu, device = both(functools.partial(wrap, dataset(folder)), num_workers=2)
        assert assert_same(cpu, device) == len(cpu.dataset)
    weights = [1.0] * len(dataset(folder))
    samplers = [torch.utils.data.WeightedRandomSampler(weights, 17, generator=torch.Generator().manual_seed(1))]
    samplers.append(copy.deepcopy(samplers[0]))
    cpu = DataLoader(dataset(folder), 8, sampler=samplers[0], seed=1)
    device = DataLoader(dataset(folder), 8, sampler=samplers[1], seed=1, decode="cuda")
    assert assert_same(cpu, device) == 17
    assert host_runtime.received == len(device) + sum(-(-n // 8) for n in (17, len(weights) + 2, 17))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_folders_of_torchvision(folder: Path, host_runtime: HostRuntime, tmp_path: Path, num_workers: int) -> None:
    """A script of torchvision: its transforms, also a format that only Pillow knows; seek tables are kept."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    from penstock.torch.vision.folders import ImageFolder

    shutil.copytree(folder, tmp_path / "all")
    Image.fromarray(np.full((40, 50, 3), 77, np.uint8)).save(tmp_path / "all" / "others" / "x.ppm")
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(40, antialias=True), v2.RandomHorizontalFlip(), v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD),
        ]
    )  # fmt: skip
    cpu, device = both(lambda: ImageFolder(tmp_path / "all", transform), num_workers=num_workers)
    for _ in range(2):
        assert assert_same(cpu, device) == len(cpu.dataset)
    assert host_runtime.received == 2 * len(device)
    assert len(device.dataset._native._tables) > len(device.dataset) / 2
    called = ImageFolder(tmp_path / "all", v2.Compose([v2.Resize((8, 8)), v2.ColorJitter(0.3), v2.ToImage()]))
    with pytest.raises(ArgumentError, match="called as usual: ColorJitter"):
        iter(DataLoader(called, 8, num_workers=num_workers, decode="cuda"))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_it_resumes(folder: Path, host_runtime: HostRuntime, num_workers: int) -> None:
    """States are the same, and either loader goes on from the other's."""
    cpu, device = both(lambda: dataset(folder), num_workers=num_workers)
    expected = [(images.clone(), labels.clone()) for images, labels in cpu]
    iterator = iter(device)
    for _ in range(2):
        next(iterator)
    state = device.state_dict()
    del iterator
    every: list[dict[str, Any]] = [{"decode": "cuda"}, {}]
    for options in every:
        fresh = DataLoader(dataset(folder), 8, shuffle=True, seed=5, num_workers=num_workers, **options)
        fresh.load_state_dict(state)
        assert_same(expected[2:], fresh)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of packets that a device was given, call by call."""
    counts: list[int] = []
    decode = PacketDecoder.decode

    def count(self: PacketDecoder, packets: Any, offsets: Any, *others: Any, **options: Any) -> Any:
        counts.append(len(offsets) - 1)
        return decode(self, packets, offsets, *others, **options)

    monkeypatch.setattr(PacketDecoder, "decode", count)
    return counts


@pytest.mark.parametrize("on_truncated", ["raise", "repair", "skip"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_damaged_images_follow_the_rules(
    tmp_path: Path, host_runtime: HostRuntime, decoded: list[int], on_truncated: str, num_workers: int
) -> None:
    """Images that change under a valid seek table are found by the kernels; then the CPU decodes these by its rules,
    and the others are not decoded again.
    """
    (tmp_path / "a").mkdir()
    images = [image for image in jpegs().values() if len(image) > 3000]
    for number in range(24):
        (tmp_path / "a" / f"{number:02}.jpg").write_bytes(images[number % len(images)])
    pipeline = [T.Decode(), T.Resize((32, 32)), T.ToLayout("CHW")]
    cpu, device = both(lambda: dataset(tmp_path, pipeline, on_truncated=on_truncated), num_workers=num_workers)
    assert_same(cpu, device)  # makes the seek tables
    for number in range(0, 24, 5):
        changed = next(filter(is_corrupt, mutated(images[number % len(images)], number, count=100)))
        (tmp_path / "a" / f"{number:02}.jpg").write_bytes(changed)
    decoded.clear()
    count = assert_same(cpu, device)
    assert sum(decoded) == 24 + 5 - (24 - count), "24 packets, and those of 5 damaged images that the CPU could mend"
    assert [(each.index, each.key) for each in device.repaired] == [(each.index, each.key) for each in cpu.repaired]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_samples_in_place_of_damaged_ones_are_the_same(
    tmp_path: Path,
    host_runtime: HostRuntime,
    decoded: list[int],
    monkeypatch: pytest.MonkeyPatch,
    on_error: str,
    channels_last: bool,
) -> None:
    """Left out or replaced, beside images that are repaired or not damaged: every value, the order, augmentation and
    the memory format; also a batch of which nothing is left.
    """
    (tmp_path / "a").mkdir()
    image = [image for image in jpegs().values() if len(image) > 3000][2]
    for number in range(16):
        (tmp_path / "a" / f"{number:02}.jpg").write_bytes(image)
    options: dict[str, Any] = {"on_error": on_error, "channels_last": channels_last, "batch_size": 4, "shuffle": False}
    ops = [T.ColorJitter(0.4), T.Normalize(MEAN, STD), T.RandomErasing(p=0.5), T.ToLayout("CHW", "float16")]
    cpu, device = both(lambda: dataset(tmp_path, [T.Decode(), T.Resize((32, 32)), *ops]), num_workers=2, **options)
    assert_same(cpu, device)  # makes the seek tables
    broken = next(filter(is_unreadable, mutated(image, 2, count=100)))
    damaged = [1, 6, 7, *(range(8, 12) if on_error == "skip" else ())]
    for number in damaged:
        (tmp_path / "a" / f"{number:02}.jpg").write_bytes(broken)
    decoded.clear()
    placed: list[bool] = []
    place = torch.Tensor.__setitem__

    def record(tensor: torch.Tensor, key: Any, value: Any) -> None:
        placed.append(host_runtime.is_launching())
        place(tensor, key, value)

    monkeypatch.setattr(torch.Tensor, "__setitem__", record)
    count = assert_same(cpu, device)

    assert placed == [True] * (2 if on_error == "replace" else 0), "for each batch, on the stream that owns the memory"
    assert count == (16 - len(damaged) if on_error == "skip" else 16)
    assert sum(decoded) == 16 + count - (16 - len(damaged)), "and of the damaged ones, those that were replaced"
    assert [each.index for each in device.left_out] == [each.index for each in cpu.left_out] == damaged
    for own, _ in device:
        assert own.is_contiguous(memory_format=torch.channels_last) or not channels_last


def test_truncated_images_are_repaired_alike(tmp_path: Path, host_runtime: HostRuntime) -> None:
    """``on_truncated="repair"``: the CPU's repair, in a batch of the device."""
    (tmp_path / "a").mkdir()
    for number, image in enumerate(jpegs().values()):
        cut = image[: -len(image) // 4] if number % 3 and len(image) > 2000 else image
        (tmp_path / "a" / f"{number:02}.jpg").write_bytes(cut)
    cpu, device = both(lambda: dataset(tmp_path, "train", on_truncated="repair"), num_workers=2)
    assert assert_same(cpu, device) == len(cpu.dataset)
    assert len(device.repaired) == len(cpu.repaired) > 0


def test_seek_tables_are_kept(folder: Path, host_runtime: HostRuntime) -> None:
    """The first epoch makes the seek tables, with tiles; the second has them."""
    data = dataset(folder)
    loader = DataLoader(data, 8, num_workers=2, decode="cuda")
    for _ in loader:
        pass
    tables = data._seek_tables.get(np.arange(len(data))).entries
    assert sum(table is not None for table in tables) >= len(data) // 2
    assert {table[1] for table in tables if table} == {1}, "tiles"


def test_channels_last(folder: Path, host_runtime: HostRuntime) -> None:
    """torch's memory format, the same values."""
    options: dict[str, Any] = {"batch_size": 8, "seed": 5, "decode": "cuda"}
    plain, other = DataLoader(dataset(folder), **options), DataLoader(dataset(folder), channels_last=True, **options)
    for (images, _), (own, _) in zip(plain, other, strict=True):
        assert own.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(images, own)


def test_what_no_kernel_does_is_named(folder: Path, host_runtime: HostRuntime) -> None:
    """An op, a filter, a callable, a ``collate_fn``: refused by ``iter()``, never left to the CPU silently."""
    lanczos = [T.Decode(), T.Resize((8, 8), filter="lanczos"), T.ToLayout("CHW")]
    called = [T.Decode(), T.Resize((8, 8)), lambda image: image, T.ToLayout("CHW")]
    erased = [T.Decode(), T.Resize((8, 8)), T.Normalize(MEAN, STD), T.RandomErasing(value="random"), T.ToLayout("CHW")]
    for pipeline, what in ((lanczos, "lanczos"), (called, "one shape"), (erased, "RandomErasing.*noise")):
        loader = DataLoader(dataset(folder, pipeline), 8, decode="cuda")
        with pytest.raises(ArgumentError, match=what):
            iter(loader)
    with pytest.raises(ArgumentError, match="collate_fn"):
        iter(DataLoader(dataset(folder), 8, decode="cuda", collate_fn=lambda samples: samples))
    with pytest.raises(ArgumentError, match="batch_size=None"):
        iter(DataLoader(dataset(folder), None, decode="cuda"))
    with pytest.raises(ArgumentError, match="no StoreDataset"):
        iter(DataLoader([1, 2, 3], 2, decode="cuda"))
    assert host_runtime.received == 0


def test_arguments_are_checked(folder: Path) -> None:
    """Before anything is started."""
    with pytest.raises(ArgumentError, match="'cpu', 'cuda'"):
        DataLoader(dataset(folder), decode="gpu")
    with pytest.raises(ArgumentError, match="threads"):
        DataLoader(dataset(folder), num_workers=2, workers="processes", decode="cuda")
    with pytest.raises(ArgumentError, match="threads"):
        DataLoader(dataset(folder), num_workers=2, multiprocessing_context="spawn", decode="cuda:1")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device(folder: Path) -> None:
    """A device is an error that names "auto", which decodes on the CPU."""
    with pytest.raises(ArgumentError, match='decode="auto"'):
        iter(DataLoader(dataset(folder), 8, decode="cuda"))
    cpu, auto = DataLoader(dataset(folder), 8, seed=1), DataLoader(dataset(folder), 8, seed=1, decode="auto")
    assert_same(cpu, auto)


def test_asking_opens_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``len``, ``repr``, states and pickling need no device."""

    def refuse(_device: torch.device) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr(runtime, "open_runtime", refuse)
    loader = DataLoader(dataset(folder), 8, seed=3, num_workers=2, decode="cuda", channels_last=True)
    assert len(loader)
    assert repr(loader)
    loader.load_state_dict(loader.state_dict())
    other = pickle.loads(pickle.dumps(loader))  # our own
    assert (other.decode, other.channels_last) == ("cuda", True)
