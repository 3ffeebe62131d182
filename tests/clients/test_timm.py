"""timm: ``create_loader`` with augmentations, mix-up and its prefetcher, ``MultiEpochsDataLoader``, several sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import timm
import timm.data
import timm.data.loader
import torch
from PIL import Image
from timm.optim import create_optimizer_v2

from tests.clients.harness import (
    EPOCHS,
    LOADINGS,
    REPLACED,
    TORCH,
    Loading,
    Recording,
    assert_same,
    modules_over,
    record,
)

# timm makes the loader itself: the only way to bring ours is to replace the name that it uses.


class Pictures(torch.utils.data.Dataset[Any]):
    """26 pictures, through whatever transform timm sets."""

    transform: Any = None

    def __len__(self) -> int:
        return 26

    def __getitem__(self, index: int) -> Any:
        pixels = np.random.default_rng(index).integers(0, 255, size=(40, 36, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)
        return self.transform(image) if self.transform else image, index % 5


def train(loader: Any, recording: Recording) -> None:
    """Epochs of timm's training step on a small network of its own."""
    model = timm.create_model("test_vit", num_classes=5, img_size=24, patch_size=8, embed_dim=16, num_heads=2, depth=1)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    for epoch in range(EPOCHS):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for images, target in loader:
            recording.note("batch", [images, target])
            loss: Any = torch.nn.functional.cross_entropy(model(images.float()), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recording.note("loss", loss)


def loader_of(loading: Loading, module: Any = timm.data.loader, **more: Any) -> Any:
    """A loader for training, on the CPU."""
    arguments: dict[str, Any] = {
        "is_training": True, "auto_augment": "rand-m9-mstd0.5", "re_prob": 0.3, "color_jitter": 0.4,
        "device": torch.device("cpu"), **loading.arguments(), **more,
    }  # fmt: skip
    return module.create_loader(Pictures(), input_size=(3, 24, 24), batch_size=4, **arguments)


@LOADINGS
@pytest.mark.parametrize("use_prefetcher", [False, True])
@pytest.mark.parametrize("worker_seeding", ["all", "part"])
def test_a_training_loader(loading: Loading, worker_seeding: str, *, use_prefetcher: bool) -> None:
    """RandAugment and random erasing, in workers that timm's ``worker_init_fn`` has seeded."""

    def run(kind: Any, recording: Recording) -> None:
        train(loader_of(loading, use_prefetcher=use_prefetcher, worker_seeding=worker_seeding), recording)

    assert_same(record(REPLACED, run, "timm"), record(TORCH, run), batches=EPOCHS * 6)


@LOADINGS
def test_scheduled_sizes(loading: Loading) -> None:
    """A batch sampler of timm's that yields pairs of index and size."""

    def run(kind: Any, recording: Recording) -> None:
        loader = loader_of(loading, use_prefetcher=False, input_size_choices=[16, 24], batch_size_choices=[6, 3])
        for epoch in range(EPOCHS):
            if hasattr(loader.batch_sampler, "set_epoch"):
                loader.batch_sampler.set_epoch(epoch)
            for images, target in loader:
                recording.note("batch", [images, target])
                recording.note("draw", torch.rand(()))

    theirs = record(TORCH, run)

    assert_same(record(REPLACED, run, "timm"), theirs, batches=theirs.seen())
    assert theirs.seen() > EPOCHS


@LOADINGS
@pytest.mark.parametrize("mixup", [False, True])
def test_a_loader_that_never_ends_its_iterator(loading: Loading, *, mixup: bool) -> None:
    """``MultiEpochsDataLoader`` over our class exchanges its sampler for an endless one, and ``FastCollateMixup``."""

    def run(module: Any, recording: Recording) -> None:
        collate = timm.data.FastCollateMixup(mixup_alpha=1.0, num_classes=5) if mixup else None
        loader = loader_of(loading, module, use_multi_epochs_loader=True, collate_fn=collate, use_prefetcher=mixup)
        inner = loader.loader if mixup else loader
        for _ in range(EPOCHS + 1):
            for images, target in loader:
                recording.note("batch", [images, target])
                recording.note("draw", torch.rand(()))
        if inner.num_workers:
            inner.iterator._shutdown_workers()

    theirs = record(TORCH, lambda _, recording: run(timm.data.loader, recording))
    with modules_over("timm.data.loader") as (module,):
        ours = record(REPLACED, lambda _, recording: run(module, recording), "timm")

    assert_same(ours, theirs, batches=(EPOCHS + 1) * 6)


@LOADINGS
def test_a_loader_for_validation(loading: Loading) -> None:
    """Not shuffled, the last batch short."""

    def run(kind: Any, recording: Recording) -> None:
        loader = loader_of(loading, is_training=False, auto_augment=None, re_prob=0.0, use_prefetcher=True)
        for _ in range(EPOCHS):
            for batch in loader:
                recording.note("batch", batch)

    assert_same(record(REPLACED, run, "timm"), record(TORCH, run), batches=EPOCHS * 7)
