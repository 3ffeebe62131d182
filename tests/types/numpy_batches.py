"""A training script without torch, as users type it: pyright in strict mode has nothing to say, without an ignore.

Nothing here runs. ``assert_type`` states what type checkers infer; mypy reads it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, assert_type

import numpy as np
from numpy.typing import NDArray

import penstock as ps
from penstock import transforms as T

Images = NDArray[np.uint8]
Pair = tuple[Images, int]


class Photos(ps.Dataset[Pair]):
    """A picture and its class."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Pair:
        return np.zeros((4, 4, 3), np.uint8), index


class Faces(ps.Dataset[dict[str, NDArray[np.float32]]]):
    """Arrays by name."""

    def __getitem__(self, index: int) -> dict[str, NDArray[np.float32]]:
        return {"boxes": np.zeros((1, 4), np.float32)}


class Named(NamedTuple):
    """A sample with names."""

    image: Images


class NamedPhotos(ps.Dataset[Named]):
    """Named tuples stay what they are."""

    def __getitem__(self, index: int) -> Named:
        return Named(np.zeros(3, np.uint8))


class Captions(ps.Dataset[tuple[Images, str]]):
    """Texts become lists, which no type says."""

    def __getitem__(self, index: int) -> tuple[Images, str]:
        return np.zeros(3, np.uint8), ""


class Numbers(ps.PartitionedDataset[int]):
    """A stream."""

    def count_parts(self) -> int:
        """How many parts there are."""
        return 2

    def read_part(self, part: int, epoch: int, first: int) -> Iterator[int]:
        """The numbers of a part."""
        return iter(range(first, 9))


def count(samples: list[Pair]) -> dict[str, int]:
    """A ``collate_fn``."""
    return {"count": len(samples)}


def batches_have_the_types_of_samples() -> None:
    """The batch type is that of the samples, or what ``collate_fn`` returns."""
    for batch in ps.DataLoader(Photos(), 4, shuffle=True, num_workers=2, seed=0):
        assert_type(batch, tuple[Images, NDArray[Any]])
    for images, labels in ps.DataLoader(Photos(), batch_size=4, drop_last=True):
        print(images.shape, labels.dtype)
    assert_type(ps.DataLoader(Faces(), 4), ps.DataLoader[dict[str, NDArray[np.float32]]])
    assert_type(next(iter(ps.DataLoader(NamedPhotos(), 4))).image, Images)
    for counts in ps.DataLoader(Photos(), 4, collate_fn=count):
        assert_type(counts, dict[str, int])
    assert_type(ps.DataLoader(Captions(), 4), ps.DataLoader[Any])
    assert_type(ps.DataLoader(Photos(), None), ps.DataLoader[Any])
    for number in ps.DataLoader(Numbers(), 4):
        print(number)


def parts_keep_the_type() -> None:
    """Subsets, splits and sums of datasets have the samples of the dataset."""
    train, _ = ps.random_split(Photos(), [0.75, 0.25], seed=1)
    assert_type(train, ps.Subset[Pair])
    assert_type(ps.ConcatDataset([Photos(), train])[0], Pair)
    assert_type(ps.DataLoader(ps.Subset(Photos(), [1, 2]), 2), ps.DataLoader[tuple[Images, NDArray[Any]]])


def a_whole_run(folder: Path) -> None:
    """Packing, reading, augmenting, loading, resuming, looking."""
    report = ps.pack(folder, folder / "photos.lmdb", on_error="skip")
    print(report.records, [each.key for each in report.skipped])
    assert ps.verify(folder / "photos.lmdb").ok
    with ps.open(folder / "photos.lmdb") as store:
        classes = store.schema["label"].classes
        assert_type(classes, tuple[str, ...])
        for record in store:
            print(record.key, record.fields["label"], ps.decode(record.fields["image"]).shape)
        augment = T.Pipeline(
            [
                T.Decode(),
                T.RandomResizedCrop(224),
                T.HorizontalFlip(),
                T.ColorJitter(brightness=0.4),
                T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD),
                T.ToLayout("CHW", "float32"),
            ]
        )
        parts = ps.split(store, {"train": 0.8, "val": 0.2}, by="label", seed=0)
        dataset = ps.Subset(ps.StoreDataset(store, fields=("image", "label"), transform=augment), parts["train"])
        sampler = ps.WeightedRandomSampler(np.ones(len(dataset)), num_samples=100, seed=3)
        loader = ps.DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=8, persistent_workers=True)
        for images, labels in loader:
            print(images.mean(), labels)
        state = loader.state_dict()
        loader.load_state_dict(state)
        print(loader.stats(), loader.left_out, len(loader))
        loader.close()
        ps.show(store, 4, output=folder / "sheet.png")
    mixture = ps.Mixture({"a": Photos(), "b": Photos()}, weights={"a": 3, "b": 1}, until=100)
    for batch in ps.DataLoader(mixture, 10, shuffle=True):
        print(batch)


def errors_say_where() -> None:
    """Errors have types, messages and places."""
    try:
        ps.open("missing")
    except ps.StoreNotFoundError as error:
        print(error.message, error.where)
