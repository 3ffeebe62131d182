"""MONAI: its DataLoader and ThreadDataLoader over ours, its cached and persistent datasets, its supervised trainer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import monai.data
import numpy as np
import pytest
import torch
from monai.data import decollate_batch, list_data_collate, pad_list_data_collate, worker_init_fn
from monai.engines import SupervisedTrainer
from monai.transforms import (
    Compose,
    EnsureTyped,
    Invertd,
    Lambdad,
    RandFlipd,
    RandGaussianNoised,
    RandRotate90d,
    RandSpatialCropd,
    RandSpatialCropSamplesd,
)
from monai.utils import set_determinism

from tests.clients.harness import (
    EPOCHS,
    LOADINGS,
    OURS,
    REPLACED,
    TORCH,
    Loading,
    Recording,
    assert_same,
    modules_over,
    record,
)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """What ``set_determinism`` sets holds for a test."""
    yield
    set_determinism(None)


def volumes(n: int = 14) -> list[dict[str, Any]]:
    """Small volumes with masks."""
    draw = np.random.default_rng(0)
    return [
        {"image": draw.normal(size=(1, 8, 8, 8)).astype(np.float32), "label": draw.integers(0, 2, (1, 8, 8, 8))}
        for _ in range(n)
    ]


def pipeline(*more: Any) -> Any:
    """Deterministic steps, which caches keep, and random ones with generators of their own."""
    keys = ["image", "label"]
    return Compose(
        [
            EnsureTyped(keys),
            Lambdad("image", halved),
            RandSpatialCropd(keys, roi_size=(6, 6, 6), random_size=False),
            RandFlipd(keys, prob=0.5, spatial_axis=0),
            RandRotate90d(keys, prob=0.5),
            RandGaussianNoised("image", prob=0.7),
            *more,
        ]
    )


def halved(image: Any) -> Any:
    """By two."""
    return image / 2


@contextlib.contextmanager
def loaders(way: str) -> Iterator[Any]:
    """MONAI's loader classes: over torch's class, or over ours."""
    if way == TORCH:
        yield SimpleNamespace(DataLoader=monai.data.DataLoader, ThreadDataLoader=monai.data.ThreadDataLoader)
        return
    kept = monai.data.DataLoader
    with modules_over("monai.data.dataloader") as (first,):
        monai.data.DataLoader = first.DataLoader  # the package's name, which ThreadDataLoader's module takes
        try:
            with modules_over("monai.data.thread_buffer") as (second,):
                yield SimpleNamespace(DataLoader=first.DataLoader, ThreadDataLoader=second.ThreadDataLoader)
        finally:
            monai.data.DataLoader = kept


def compared(run: Callable[[Any, Recording], None], batches: int, *, generators: bool = True) -> None:
    """The run with MONAI's classes over ours, and over torch's; ``generators``: with the global ones at the end."""

    def once(way: str) -> Recording:
        with loaders(way) as classes:
            recording = record(way, lambda _, recording: seeded(run, classes, recording), "monai")
        recording.entries = [entry for entry in recording.entries if generators or entry[0] != "generators"]
        return recording

    assert_same(once(REPLACED), once(TORCH), batches=batches)


def seeded(run: Callable[[Any, Recording], None], classes: Any, recording: Recording) -> None:
    """MONAI's own seed, which its transforms take when they are made."""
    set_determinism(7)
    run(classes, recording)


def look(loader: Any, recording: Recording) -> None:
    """Epochs of a loop that draws a number for each batch, and takes the batch apart as MONAI's do."""
    for _ in range(EPOCHS):
        for batch in loader:
            recording.note("batch", batch)
            recording.note("samples", [dict(sample) for sample in decollate_batch(batch)])
            recording.note("draw", torch.rand(()))


def dataset_of(kind: str, folder: Path) -> Any:
    """One of MONAI's datasets over the volumes."""
    if kind == "dataset":
        return monai.data.Dataset(volumes(), pipeline())
    if kind == "cached":
        return monai.data.CacheDataset(volumes(), pipeline(), cache_rate=1.0, progress=False)
    if kind == "shared-cache":
        return monai.data.CacheDataset(volumes(), pipeline(), runtime_cache="processes", progress=False)
    return monai.data.PersistentDataset(volumes(), pipeline(), cache_dir=folder)


@LOADINGS
@pytest.mark.parametrize("kind", ["dataset", "cached", "shared-cache", "persistent"])
def test_a_loader_over_each_kind_of_dataset(loading: Loading, kind: str, tmp_path_factory: Any) -> None:
    """``DataLoader`` seeds transforms by itself without workers, and by its ``worker_init_fn`` with them."""

    def run(classes: Any, recording: Recording) -> None:
        dataset = dataset_of(kind, tmp_path_factory.mktemp("cache"))
        look(classes.DataLoader(dataset, batch_size=4, shuffle=True, **loading.arguments()), recording)

    compared(run, EPOCHS * 4)


@OURS
@LOADINGS
def test_our_loader_with_their_collation(way: str, loading: Loading) -> None:
    """``pad_list_data_collate`` and ``worker_init_fn`` passed to the loader that the user makes."""

    def run(kind: Any, recording: Recording) -> None:
        crops = RandSpatialCropSamplesd(["image", "label"], roi_size=(5, 5, 5), num_samples=2)
        loader = kind(
            monai.data.Dataset(volumes(), pipeline(crops)), batch_size=3, shuffle=True,
            collate_fn=pad_list_data_collate, worker_init_fn=worker_init_fn, **loading.arguments(),
        )  # fmt: skip
        look(loader, recording)

    def seeding(kind: Any, recording: Recording) -> None:
        seeded(run, kind, recording)

    assert_same(record(way, seeding, "monai"), record(TORCH, seeding), batches=EPOCHS * 5)


@LOADINGS
@pytest.mark.parametrize("repeats", [1, 2])
def test_a_loader_that_iterates_in_a_thread(loading: Loading, repeats: int) -> None:
    """``ThreadDataLoader`` takes batches in a thread of its own."""

    def run(classes: Any, recording: Recording) -> None:
        loader = classes.ThreadDataLoader(
            monai.data.CacheDataset(volumes(), pipeline(), progress=False), batch_size=4, buffer_size=1,
            repeats=repeats, generator=torch.Generator().manual_seed(3), shuffle=True, **loading.arguments(),
        )  # fmt: skip
        for _ in range(EPOCHS):
            for batch in loader:
                recording.note("batch", batch)

    compared(run, EPOCHS * 4 * repeats)


def test_workers_that_are_threads() -> None:
    """``use_thread_workers`` passes a multiprocessing context whose processes are threads of this one.

    torch's loader has each thread seed the generators of the whole process, in any order; ours does not.
    """

    def run(classes: Any, recording: Recording) -> None:
        loader = classes.ThreadDataLoader(
            monai.data.Dataset(volumes(), Lambdad("image", halved)), batch_size=4, num_workers=2,
            use_thread_workers=True,
        )  # fmt: skip
        for _ in range(EPOCHS):
            for batch in loader:
                recording.note("batch", batch)

    compared(run, EPOCHS * 4, generators=False)


@LOADINGS
def test_a_loader_over_a_stream(loading: Loading) -> None:
    """``IterableDataset`` and ``ShuffleBuffer`` share themselves out over the workers."""

    def run(classes: Any, recording: Recording) -> None:
        stream = monai.data.ShuffleBuffer(volumes(), pipeline(), buffer_size=4, seed=1, epochs=1)
        loader = classes.DataLoader(stream, batch_size=2, **loading.arguments())
        for _ in range(EPOCHS):
            for batch in loader:
                recording.note("batch", batch)

    compared(run, EPOCHS * (8 if loading.num_workers else 7))


@LOADINGS
def test_patches_of_volumes(loading: Loading) -> None:
    """``GridPatchDataset``: a stream of patches, batched by MONAI's own collation."""

    def run(classes: Any, recording: Recording) -> None:
        patches = monai.data.GridPatchDataset(
            data=[volume["image"] for volume in volumes(4)], patch_iter=monai.data.PatchIter(patch_size=(4, 4, 4)),
        )  # fmt: skip
        loader = classes.DataLoader(patches, batch_size=4, collate_fn=list_data_collate, **loading.arguments())
        for _ in range(EPOCHS):
            for batch in loader:
                recording.note("batch", batch)

    compared(run, EPOCHS * 8)


@OURS
@LOADINGS
def test_a_supervised_trainer(way: str, loading: Loading) -> None:
    """``SupervisedTrainer`` over a smart cache that is exchanged between epochs."""

    def run(kind: Any, recording: Recording) -> None:
        dataset = monai.data.SmartCacheDataset(
            volumes(), pipeline(), replace_rate=0.25, cache_num=8, progress=False, shuffle=False, num_init_workers=1,
            num_replace_workers=1,
        )  # fmt: skip
        loader = kind(dataset, batch_size=4, shuffle=True, collate_fn=list_data_collate, worker_init_fn=worker_init_fn,
                      **loading.arguments())  # fmt: skip
        network = torch.nn.Conv3d(1, 1, 3, padding=1)

        def prepare(batch: Any, *_: Any, **__: Any) -> Any:
            recording.note("batch", batch)
            return batch["image"], batch["label"].float()

        trainer = SupervisedTrainer(
            device=torch.device("cpu"), max_epochs=EPOCHS, train_data_loader=loader, network=network,
            optimizer=torch.optim.SGD(network.parameters(), lr=0.1), loss_function=torch.nn.BCEWithLogitsLoss(),
            prepare_batch=prepare, decollate=False,
        )  # fmt: skip
        trainer.run()
        recording.note("weights", dict(network.state_dict()))

    def seeding(kind: Any, recording: Recording) -> None:
        seeded(run, kind, recording)

    assert_same(record(way, seeding, "monai"), record(TORCH, seeding), batches=EPOCHS * 2)


@LOADINGS
def test_transforms_are_inverted(loading: Loading) -> None:
    """Batches keep what ``Invertd`` needs to undo random transforms: their meta tensors arrive whole."""

    def run(classes: Any, recording: Recording) -> None:
        transform = Compose([EnsureTyped("image"), RandFlipd("image", prob=0.5), RandRotate90d("image", prob=0.5)])
        loader = classes.DataLoader(monai.data.Dataset(volumes(), transform), batch_size=4, **loading.arguments())
        undo = Invertd("image", transform, orig_keys="image", nearest_interp=False)
        for batch in loader:
            recording.note("batch", batch)
            for sample in decollate_batch(batch):
                recording.note("undone", undo(sample)["image"])
                recording.note("operations", re.sub(r"'?id'?: \d+", "", str(sample["image"].applied_operations)))

    compared(run, 4)
