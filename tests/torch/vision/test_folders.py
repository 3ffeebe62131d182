"""ImageFolder and compile: torchvision's datasets with native decoding."""

from __future__ import annotations

import copy
import logging
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from PIL import Image, ImageFile, ImageOps  # noqa: E402  # behind the skip
from torchvision import datasets, tv_tensors  # noqa: E402
from torchvision.datasets.folder import pil_loader  # noqa: E402
from torchvision.transforms import transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

import penstock as ps  # noqa: E402
import penstock.torch as pt  # noqa: E402
from penstock.datasets.base import spec_of  # noqa: E402
from penstock.errors import ArgumentError, DecodeError, ImageTooLargeError, SampleError  # noqa: E402
from penstock.sample import SampleKeys  # noqa: E402
from penstock.torch.vision.folders import ImageFolder, UnreadableImageError  # noqa: E402
from tests.torch.vision.gallery import gallery, levels  # noqa: E402

EVAL = v1.Compose([v1.Resize(40), v1.CenterCrop(32), v1.PILToTensor()])
TRAIN = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.ToTensor()])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gallery."""
    return gallery(tmp_path_factory.mktemp("gallery"))


def filled(dataset: Any, indices: Any, keys: SampleKeys | None = None) -> tuple[Any, Any]:
    """The rows that the dataset fills for some indices."""
    indices = np.asarray(indices)
    out = tuple(np.zeros((len(indices), *leaf.shape), leaf.dtype) for leaf in dataset.spec())
    dataset.fill(indices, out, keys or SampleKeys(0, 0, indices))
    return out[0], out[1]


# the class


@pytest.mark.parametrize("more", [{}, {"is_valid_file": lambda path: path.endswith(".png")}])
def test_it_is_torchvisions_folder(root: Path, more: dict[str, Any]) -> None:
    """Classes, samples, targets, their order, the repr and the type are torchvision's."""
    ours, theirs = (module.ImageFolder(root, transform=EVAL, **more) for module in (pt, datasets))

    assert isinstance(ours, datasets.ImageFolder)
    assert len(ours) == len(theirs) > 4
    for name in ("classes", "class_to_idx", "samples", "targets", "imgs", "root", "extensions"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert repr(ours) == repr(theirs)


def test_its_errors_are_torchvisions(tmp_path: Path) -> None:
    """A root without classes, and a class without images, are torchvision's errors, or allowed."""
    (tmp_path / "full" / "empty").mkdir(parents=True)

    for root in (tmp_path / "absent", tmp_path / "full" / "empty", tmp_path / "full"):
        with pytest.raises(FileNotFoundError) as theirs:
            datasets.ImageFolder(root)
        with pytest.raises(FileNotFoundError) as ours:
            pt.ImageFolder(root)
        assert str(ours.value) == str(theirs.value)
    assert len(pt.ImageFolder(tmp_path / "full", EVAL, allow_empty=True)) == 0
    assert spec_of(pt.ImageFolder(tmp_path / "full", EVAL, allow_empty=True)) is None


def test_the_loader_gives_tensors_of_filled_rows(root: Path) -> None:
    """Batches are torch tensors that equal single samples; targets are int64."""
    dataset = pt.ImageFolder(root, EVAL)

    batches = list(pt.DataLoader(dataset, 4, num_workers=2))

    images, targets = (torch.cat(column) for column in zip(*batches, strict=True))
    assert images.dtype == torch.uint8
    assert targets.dtype == torch.int64
    assert targets.tolist() == dataset.targets
    for i, (image, _) in enumerate(dataset):
        assert torch.equal(images[i], image)


@pytest.mark.parametrize("transform", [TRAIN, v1.Compose([*TRAIN.transforms, v1.Lambda(lambda tensor: tensor * 2)])])
def test_the_same_batches_whatever_the_workers(root: Path, transform: Any) -> None:
    """Random crops depend on (seed, epoch, index) only, filled or collated, with any number of workers."""
    dataset = pt.ImageFolder(root, transform)

    runs = [
        [images for images, _ in pt.DataLoader(dataset, 5, shuffle=True, seed=3, num_workers=workers)]
        for workers in (0, 1, 2)
    ]

    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], run, strict=True))


def test_manual_seed_fixes_single_samples(root: Path) -> None:
    """Outside a penstock loader, torch's global generator seeds a sample; without random transforms it is not used."""
    train, evaluation = pt.ImageFolder(root, TRAIN), pt.ImageFolder(root, EVAL)

    torch.manual_seed(1)
    first, second = train[0][0], train[0][0]
    torch.manual_seed(1)
    again = train[0][0]
    before = torch.get_rng_state()
    evaluation[0]

    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


# transforms in part


@pytest.mark.parametrize(
    ("known", "kind", "dtype"),
    [
        ([v1.Resize((20, 30))], Image.Image, None),
        ([v1.Resize((20, 30)), v1.PILToTensor()], torch.Tensor, torch.uint8),
        ([v1.Resize((20, 30)), v1.ToTensor()], torch.Tensor, torch.float32),
        ([v2.Resize((20, 30)), v2.ToImage(), v2.ToDtype(torch.float16, scale=True)], tv_tensors.Image, torch.float16),
    ],
)
def test_the_rest_gets_what_torchvision_would_give(root: Path, known: list[Any], kind: type, dtype: Any) -> None:
    """The first transform that is not recognised is called with torchvision's type, mode, size, dtype and values."""
    seen: list[Any] = []

    def look(value: Any) -> Any:
        seen.append(value)
        return len(seen)

    ours, theirs = (module.ImageFolder(root, v1.Compose([*known, look])) for module in (pt, datasets))

    results = [dataset[3] for dataset in (ours, theirs)]

    assert results == [(1, 0), (2, 0)]
    assert type(seen[0]) is kind
    assert getattr(seen[0], "dtype", None) == dtype
    assert levels(*seen) <= 1.13
    assert ours.spec() is None


def test_the_rest_sees_the_files_metadata(tmp_path: Path) -> None:
    """A callable after Resize finds the Exif orientation, as in torchvision's images."""
    (tmp_path / "c").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "c" / "turned.jpg", exif=exif)
    transform = v1.Compose([v1.Resize(10), ImageOps.exif_transpose])

    found = [module.ImageFolder(tmp_path, transform)[0][0].size for module in (pt, datasets)]

    assert found == [(10, 20), (10, 20)]


@pytest.mark.parametrize(
    ("transform", "loader"),
    [
        (None, None),
        (v1.Compose([v1.Lambda(lambda image: image.size), torch.tensor]), None),
        (v1.Resize(9), None),
        (EVAL, Image.open),
    ],
)
def test_without_a_known_beginning_everything_is_torchvisions(root: Path, transform: Any, loader: Any) -> None:
    """Nothing is native without a transform, with an unknown first one, a PIL image at the end, or another loader."""
    more = {} if loader is None else {"loader": loader}
    ours, theirs = (module.ImageFolder(root, transform, **more) for module in (pt, datasets))

    image, target = ours[2]

    assert ours.spec() is None
    assert target == 0
    if isinstance(image, Image.Image):
        assert image.tobytes() == theirs[2][0].tobytes()
    else:
        assert torch.equal(image, theirs[2][0])
    with pytest.raises(ArgumentError, match="one shape"):
        ours.fill(np.arange(1), None, SampleKeys(0, 0, np.arange(1)))


def test_the_log_says_what_is_native(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line at level INFO, on first use and after a change, but not for each sample or epoch."""
    dataset = pt.ImageFolder(root, v1.Compose([v1.CenterCrop(8), v1.RandomInvert(), v1.ToTensor()]))

    with caplog.at_level(logging.INFO, "penstock.torch.vision"):
        for _ in range(3):
            dataset[0]
            dataset.spec()
        dataset.transform = EVAL
        dataset[0]

    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        ("native: CenterCrop; called as usual: RandomInvert, ToTensor (RandomInvert: penstock has no op for it)"),
        "native: Resize, CenterCrop, PILToTensor",
    ]


# what users do to a dataset


def test_attributes_may_be_exchanged(root: Path) -> None:
    """A new transform, a changed attribute of it, and a new list of samples take effect."""
    dataset: Any = pt.ImageFolder(root, v1.Compose([v1.CenterCrop(8), v1.PILToTensor()]))
    shapes = [dataset.spec()[0].shape]

    dataset.transform.transforms[0].size = (9, 7)
    shapes.append(dataset.spec()[0].shape)
    dataset.transform = EVAL
    shapes.append(tuple(dataset[0][0].shape))
    dataset.samples = [(dataset.samples[-1][0], 17)]
    images, targets = filled(dataset, [0])

    assert shapes == [(3, 8, 8), (3, 9, 7), (3, 32, 32)]
    assert targets.tolist() == [17]
    assert len(images) == len(dataset) == 1


def test_target_transform(root: Path) -> None:
    """Ints are filled; other targets are collated by torch."""
    negated = pt.ImageFolder(root, EVAL, target_transform=lambda target: -target)
    soft = pt.ImageFolder(root, EVAL, target_transform=lambda target: torch.eye(2)[target])
    named = pt.ImageFolder(root, EVAL, target_transform=["cat", "dog"].__getitem__)

    batches = [next(iter(pt.DataLoader(dataset, len(negated)))) for dataset in (negated, soft, named)]

    assert [spec_of(dataset) is None for dataset in (negated, soft, named)] == [False, True, True]
    assert batches[0][1].tolist() == [-target for target in negated.targets]
    assert batches[1][1].argmax(1).tolist() == negated.targets
    assert list(batches[2][1])[:1] == ["cat"]
    assert negated[len(negated) - 1][1] == -1


@pytest.mark.parametrize("odd", [0.5, True, None])
def test_a_target_that_is_no_int_is_not_cut_to_one(root: Path, odd: Any) -> None:
    """A later target of another type is an error that says what to do; it is not rounded."""
    dataset = pt.ImageFolder(root, EVAL)
    dataset.samples = [*dataset.samples[:2], (dataset.samples[2][0], odd)]

    with pytest.raises(SampleError, match=r"collate_fn.*index=2"):
        filled(dataset, [0, 1, 2])


def test_a_subclass_with_its_own_getitem_is_left_alone(root: Path) -> None:
    """The result of the user's ``__getitem__`` is used; rows are not filled."""

    class Indexed(ImageFolder):
        def __getitem__(self, index: int) -> Any:
            return (*super().__getitem__(index), index)

    class Renamed(ImageFolder):
        def find_classes(self, directory: Any) -> Any:
            return ["dogs"], {"dogs": 5}

    batch = next(iter(pt.DataLoader(Indexed(root, EVAL), 3)))

    assert batch[2].tolist() == [0, 1, 2]
    assert spec_of(Indexed(root, EVAL)) is None
    assert set(filled(Renamed(root, EVAL), [0, 1])[1]) == {5}


def test_it_pickles_and_copies(root: Path) -> None:
    """A copy by pickle or deepcopy, used or not, gives the same samples."""
    dataset = pt.ImageFolder(root, EVAL)
    fresh = pickle.dumps(dataset)
    expected = dataset[1][0]

    for twin in (pickle.loads(fresh), pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset), copy.copy(dataset)):
        assert type(twin) is ImageFolder
        assert torch.equal(twin[1][0], expected)
        np.testing.assert_array_equal(filled(twin, [1])[0][0], expected.numpy())


# files that are no images


def broken(root: Path, name: str, content: bytes) -> pt.ImageFolder:
    """A folder whose second image has this content."""
    (root / "c").mkdir()
    Image.new("RGB", (50, 40), "red").save(root / "c" / "a.jpg")
    (root / "c" / name).write_bytes(content)
    return pt.ImageFolder(root, EVAL)


@pytest.mark.parametrize("content", [b"", b"no image", b"\xff\xd8\xff\xe0 cut"])
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes) -> None:
    """The error is one that users of Pillow and of penstock catch, with path and index; other rows are filled."""
    dataset = broken(tmp_path, "b.jpg", content)
    out = (np.zeros((2, 3, 32, 32), np.uint8), np.zeros(2, np.int64))

    with pytest.raises(OSError, match=r"b.jpg.*index=1") as single:
        dataset[1]
    dataset.spec()
    with pytest.raises(DecodeError, match=r"b.jpg.*index=1") as batched:
        dataset.fill(np.array([1, 0]), out, SampleKeys(0, 0, np.arange(2)))

    assert isinstance(single.value, UnreadableImageError)
    assert "position" not in {*single.value.where, *batched.value.where}
    assert isinstance(pickle.loads(pickle.dumps(batched.value)), OSError)
    assert out[0][1].any()


def test_a_file_that_is_gone_is_not_found(tmp_path: Path) -> None:
    """A missing file is Python's FileNotFoundError, as in torchvision."""
    dataset = broken(tmp_path, "b.jpg", b"")
    (tmp_path / "c" / "b.jpg").unlink()

    for attempt in (dataset.__getitem__, lambda index: filled(dataset, [index])):
        with pytest.raises(FileNotFoundError, match=r"b.jpg"):
            attempt(1)


def test_truncated_images_load_where_pillow_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``ImageFile.LOAD_TRUNCATED_IMAGES`` has the same effect as in torchvision, with the same pixels."""
    dataset = broken(tmp_path, "b.jpg", b"")
    noise = np.random.default_rng(0).integers(0, 255, (60, 70, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "c" / "b.jpg")
    whole = (tmp_path / "c" / "b.jpg").read_bytes()
    (tmp_path / "c" / "b.jpg").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(OSError, match="truncated"):
        dataset[1]
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    found = dataset[1][0]

    assert levels(found, datasets.ImageFolder(tmp_path, EVAL)[1][0]) <= 1
    np.testing.assert_array_equal(filled(dataset, [1])[0][0], found.numpy())


def test_a_format_that_only_pillow_reads_is_read(tmp_path: Path) -> None:
    """Pillow decodes formats that penstock does not decode, with any file name, as in torchvision."""
    dataset = broken(tmp_path, "b.jpg", b"")
    Image.effect_noise((50, 40), 60).save(tmp_path / "c" / "b.jpg", format="PCX")

    images, _ = filled(dataset, [0, 1])

    assert levels(torch.from_numpy(images[1]), datasets.ImageFolder(tmp_path, EVAL)[1][0]) <= 1
    np.testing.assert_array_equal(images[1], dataset[1][0].numpy())


def test_pillows_cap_is_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image is too large at twice ``MAX_IMAGE_PIXELS``, as in Pillow."""
    dataset = broken(tmp_path, "b.jpg", b"")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 900)

    with pytest.raises(ImageTooLargeError, match=r"a.jpg"):
        dataset[0]


def test_an_image_too_small_for_its_crop_is_named(root: Path) -> None:
    """RandomCrop without padding raises a ValueError for a small image, as in torchvision, with its path."""
    dataset = pt.ImageFolder(root, v1.Compose([v1.RandomCrop(60), v1.ToTensor()]))
    small = next(i for i, (path, _) in enumerate(dataset.samples) if path.endswith("plain3.jpg"))

    for attempt in (dataset.__getitem__, lambda index: filled(dataset, [index])):
        with pytest.raises(ValueError, match=r"plain3.jpg"):
            attempt(small)


# compile


def test_compile_makes_a_folder_fill(root: Path) -> None:
    """The result fills batches, and is an instance of torchvision's class; the original does not change."""
    theirs = datasets.ImageFolder(root, EVAL)
    before = dict(vars(theirs))

    ours = pt.compile(theirs)

    assert type(ours) is ImageFolder
    assert type(theirs) is datasets.ImageFolder
    assert vars(theirs) == before
    assert ours.samples is theirs.samples
    assert levels(ours[0][0], theirs[0][0]) <= 1
    assert filled(ours, range(len(ours)))[1].tolist() == theirs.targets
    assert pt.compile(ours) is ours


def test_compile_knows_dataset_folders(root: Path) -> None:
    """DatasetFolder with torchvision's PIL loader and its own extensions can be compiled."""
    theirs = datasets.DatasetFolder(str(root), pil_loader, extensions=(".png",), transform=EVAL)

    ours = pt.compile(theirs)

    assert isinstance(ours, datasets.DatasetFolder)
    assert spec_of(ours) is not None
    assert repr(ours) == repr(theirs)
    assert pickle.loads(pickle.dumps(ours)).samples == theirs.samples


@pytest.mark.parametrize("library", [torch.utils.data, ps])
def test_compile_reaches_into_wrappers(root: Path, library: Any) -> None:
    """Subsets and concatenations, at any depth, keep order and length, and fill batches."""
    theirs = datasets.ImageFolder(root, EVAL)
    picks = [5, 0, 5, len(theirs) - 1]
    wrapped = library.ConcatDataset(
        [library.Subset(theirs, picks), library.Subset(library.Subset(theirs, [3, 4]), [1])]
    )

    compiled = pt.compile(wrapped)

    images, targets = filled(compiled, range(5))
    assert len(compiled) == len(wrapped) == 5
    for i in range(5):
        image, target = wrapped[i]
        assert levels(torch.from_numpy(images[i]), image) <= 1
        assert targets[i] == target
        assert torch.equal(compiled[i][0], torch.from_numpy(images[i]))


def test_compile_takes_a_wrapper_of_ours_out_of_torchs(root: Path) -> None:
    """torch's Subset hides that its folder fills batches; the compiled one does not."""
    part = torch.utils.data.Subset(pt.ImageFolder(root, EVAL), [2, 1])

    compiled = pt.compile(part)

    assert spec_of(part) is None
    assert filled(compiled, [0, 1])[1].tolist() == [0, 0]


def test_what_cannot_be_compiled_comes_back(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Subclasses, unknown classes, other loaders and unknown transforms are returned unchanged, with a log line."""

    class Mine(datasets.ImageFolder):  # type: ignore[misc]  # torchvision ships no types
        pass

    numbers = torch.utils.data.TensorDataset(torch.arange(3))
    strangers = [
        Mine(root, EVAL),
        datasets.ImageFolder(root),
        datasets.ImageFolder(root, v1.Resize(9)),
        datasets.ImageFolder(root, v1.Compose([lambda image: image, *EVAL.transforms])),
        datasets.ImageFolder(root, EVAL, loader=Image.open),
        numbers,
        torch.utils.data.Subset(numbers, [0]),
        torch.utils.data.ConcatDataset([numbers, numbers]),
        [1, 2, 3],
    ]

    with caplog.at_level(logging.INFO, "penstock.torch.vision"):
        compiled = [pt.compile(stranger) for stranger in strangers]

    assert all(new is old for new, old in zip(compiled, strangers, strict=True))
    assert len(caplog.records) >= len(strangers)
    assert all("native: nothing" in r.getMessage() or "nothing is native" in r.getMessage() for r in caplog.records)


def test_torchs_own_loader_takes_it_too(root: Path) -> None:
    """torch.utils.data.DataLoader with worker processes accepts it."""
    dataset = pt.compile(datasets.ImageFolder(root, EVAL))

    loader = torch.utils.data.DataLoader(
        dataset, 4, num_workers=1, multiprocessing_context="fork", collate_fn=lambda samples: [t for _, t in samples]
    )

    assert [target for targets in loader for target in targets] == dataset.targets


def test_moved_data_are_followed(root: Path, tmp_path: Path) -> None:
    """Paths are read for each sample, so a changed list of samples takes effect."""
    dataset = pt.ImageFolder(root, EVAL)
    shutil.copytree(root, tmp_path / "copy")

    dataset.samples = [(path.replace(str(root), str(tmp_path / "copy")), target) for path, target in dataset.samples]

    assert torch.equal(dataset[0][0], pt.ImageFolder(root, EVAL)[0][0])
