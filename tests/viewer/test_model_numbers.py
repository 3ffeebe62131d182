"""What the viewer shows of a loader is what the loader gives, bit for bit; and the loader is as it was before."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.sample import Field, Tree, tree_leaves
from penstock.viewer.model.batches import build_batch
from penstock.viewer.model.source import open_source
from penstock.viewer.model.steps import trace_sample
from tests.pack.images import make_photos, picture
from tests.sheets.annotated_packs import write_pack

torch = pytest.importorskip("torch")

BOXED = {"image": Field("image"), "boxes": Field("boxes"), "labels": Field("int64[*]", ("cat", "dog"))}


def add_noise(image: Any) -> Any:
    """A callable of the user that draws from the generator of the sample, and from a global one."""
    drawn = np.asarray(image).astype(np.int64) + ps.rng().integers(0, 9) + random.randrange(9)
    return drawn.clip(0, 255).astype(np.uint8)


FUSED = [
    T.Decode(),
    T.RandomResizedCrop(24),
    T.HorizontalFlip(),
    T.Normalize((0.5, 0.4, 0.4), (0.2, 0.2, 0.25)),
    T.ToLayout("CHW"),
]
UNFUSED = [T.Decode(), T.RandomResizedCrop(24), T.ColorJitter(0.4, 0.4, 0.4), T.RandomRotation(20), T.ToLayout("CHW")]
OWN = [T.Decode(), T.RandomResizedCrop(20), add_noise, T.HorizontalFlip()]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures of two classes."""
    return make_photos(tmp_path / "photos", 12)


def make_dataset(photos: Path, ops: list[Any]) -> ps.StoreDataset:
    """Pictures and labels."""
    return ps.StoreDataset(photos, ("image", "label"), ops)


def arrays(batch: Tree) -> list[Any]:
    """The arrays of a batch."""
    return [np.asarray(leaf) for leaf in tree_leaves(batch)]


def assert_equal(one: Tree, other: Tree) -> None:
    """Both have the same values, dtypes and shapes."""
    left, right = arrays(one), arrays(other)
    assert len(left) == len(right)
    for mine, theirs in zip(left, right, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(mine, theirs)


def make_loader(kind: str, dataset: Any, **more: Any) -> Any:
    """A loader of NumPy or of torch that shuffles, with seed 5."""
    if kind == "numpy":
        return ps.DataLoader(dataset, 4, shuffle=True, seed=5, seed_per_sample=True, **more)
    import penstock.torch

    return penstock.torch.DataLoader(dataset, 4, shuffle=True, seed=5, seed_per_sample=True, **more)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("ops", [FUSED, UNFUSED, OWN], ids=["fused", "unfused", "own"])
def test_samples_and_batches_are_those_of_the_loader(photos: Path, kind: str, ops: list[Any]) -> None:
    """Each sample of each batch of several epochs, and the batches themselves."""
    loader = make_loader(kind, make_dataset(photos, ops))
    source = open_source(make_loader(kind, make_dataset(photos, ops)))

    for epoch in range(3):
        for number, batch in enumerate(loader):
            built = build_batch(source, epoch, number)
            assert_equal(built.batch, batch)
            assert not built.note
            assert built.total == 3
            for row, index in enumerate(built.indices):
                assert isinstance(index, int)
                traced = trace_sample(source, index, 5, epoch, 64)
                assert_equal(traced.sample, [values[row] for values in batch])
                assert traced.steps[-1]["picture"]


@pytest.mark.parametrize("seed", [0, 1 << 62])
def test_another_seed_is_that_of_another_loader(photos: Path, seed: int) -> None:
    """The samples of any seed can be seen, whatever the loader was given."""
    source = open_source(make_loader("numpy", make_dataset(photos, FUSED)))

    for batch in ps.DataLoader(make_dataset(photos, FUSED), 12, seed=seed):
        for index in range(12):
            assert_equal(trace_sample(source, index, seed, 0, 64).sample, [values[index] for values in batch])


def test_subsets_and_concatenations_have_their_own_numbers(photos: Path) -> None:
    """A sample is drawn with the index in the dataset that the loader has, not in the store."""
    dataset = make_dataset(photos, FUSED)
    joined = ps.ConcatDataset([ps.Subset(dataset, [7, 3]), ps.Subset(dataset, [1])])
    source = open_source(ps.DataLoader(joined, 3, seed=5))

    [batch] = ps.DataLoader(joined, 3, seed=5)

    for index in range(3):
        assert_equal(trace_sample(source, index, 5, 0, 64).sample, [values[index] for values in batch])


def test_torchs_own_loader_and_subset(photos: Path) -> None:
    """Its order is drawn from a copy of its generator."""

    def make() -> Any:
        subset = torch.utils.data.Subset(make_dataset(photos, [T.Decode(), T.CenterCrop(16)]), [8, 2, 5, 0])
        return torch.utils.data.DataLoader(subset, 2, shuffle=True, generator=torch.Generator().manual_seed(3))

    source, loader = open_source(make()), make()

    for epoch in range(2):
        for number, batch in enumerate(loader):
            assert_equal(build_batch(source, epoch, number).batch, batch)


def distributed() -> Any:
    """The second of two ranks."""
    return torch.utils.data.DistributedSampler(range(12), 2, 1, seed=4)


def with_replacement() -> Any:
    """Eight of twelve, by a generator of its own."""
    generator = torch.Generator().manual_seed(2)
    return torch.utils.data.RandomSampler(range(12), replacement=True, num_samples=8, generator=generator)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("torch", lambda: {"shuffle": True, "seed": 5, "num_workers": 2, "workers": "threads"}),
        ("torch", lambda: {
            "shuffle": True, "seed": 5, "num_workers": 1, "workers": "threads", "persistent_workers": True
        }),
        ("torch", lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(9)}),
        ("torch", lambda: {"sampler": ps.RandomSampler(range(12), seed=3), "seed": 3}),
        ("torch", lambda: {"sampler": distributed(), "seed": 3}),
        ("torch", lambda: {"sampler": with_replacement(), "seed": 3}),
        ("torch", lambda: {"batch_size": None, "seed": 5}),
        ("numpy", lambda: {"batch_size": None, "seed": 5}),
        ("numpy", lambda: {"batch_size": 1, "batch_sampler": [[3, 4], [1, 0, 2]], "seed": 5}),
        ("numpy", lambda: {"batch_size": 5, "shuffle": True, "drop_last": True, "seed": 5}),
        ("numpy", lambda: {"sampler": ps.WeightedRandomSampler([1.0] * 12, 8, seed=1), "seed": 5}),
        ("numpy", lambda: {"shuffle": True, "seed": 5, "num_workers": 1, "overlap_epochs": True}),
    ],
)  # fmt: skip
def test_batches_of_any_order(photos: Path, kind: str, arguments: Callable[[], dict[str, Any]]) -> None:
    """Whatever draws the indices, with workers or without, in several epochs."""
    import penstock.torch

    def make() -> Any:
        made = {"batch_size": 4, **arguments()}
        return {"numpy": ps.DataLoader, "torch": penstock.torch.DataLoader}[kind](make_dataset(photos, FUSED), **made)

    source, loader = open_source(make()), make()

    for epoch in range(3):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for number, batch in enumerate(loader):
            built = build_batch(source, epoch, number)
            assert_equal(built.batch, batch)
            assert not built.note
    loader.close()


def test_an_order_that_cannot_be_known_is_told(photos: Path) -> None:
    """And shown as it may be drawn; the global generator stays as it was."""
    before = torch.get_rng_state()
    source = open_source(torch.utils.data.DataLoader(make_dataset(photos, FUSED), 4, shuffle=True))

    built = build_batch(source, 3, 1)

    assert "drawn from global generators" in built.note
    assert len(set(built.indices)) == 4
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_that_was_drawn_from_goes_on_where_it_is(photos: Path) -> None:
    """As one that has divided a dataset before: the first batch is the loader's, and the page says what is counted."""
    import penstock.torch as pt

    generator = torch.Generator().manual_seed(2)
    first, _ = torch.utils.data.random_split(make_dataset(photos, FUSED), [8, 4], generator=generator)
    loader: Any = pt.DataLoader(first, 2, shuffle=True, generator=generator)

    built = build_batch(open_source(loader), 0, 1)

    assert "was drawn from since it was seeded" in built.note
    assert_equal(built.batch, list(loader)[1])


def test_native_ops_leave_global_generators_alone(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training loop of this process may draw from them meanwhile."""
    source = open_source(make_loader("torch", make_dataset(photos, FUSED)))

    def refuse(*_: object) -> None:
        pytest.fail("a global generator was changed")

    monkeypatch.setattr(random, "seed", refuse)
    monkeypatch.setattr(random, "setstate", refuse)
    build_batch(source, 1, 1)
    trace_sample(source, 1, 0, 0, 64)


def test_boxes_of_the_last_step_are_those_of_the_sample(tmp_path: Path) -> None:
    """Targets follow, and what an op removes is gone."""
    boxes = np.array([[1, 1, 9, 9], [10, 10, 19, 19]], np.float32)
    records = [{"image": picture(i), "boxes": boxes, "labels": np.array([0, 1])} for i in range(4)]
    store = write_pack(tmp_path / "boxes.lmdb", BOXED, records)
    ops = [T.Decode(), T.RandomCrop(12), T.HorizontalFlip(), T.SanitizeBoundingBoxes()]
    dataset = ps.StoreDataset(store, transform=ops, ragged="list")
    source = open_source(ps.DataLoader(dataset, 4, seed=5))

    [batch] = ps.DataLoader(dataset, 4, seed=5)

    for index in range(4):
        traced = trace_sample(source, index, 5, 0, 64)
        np.testing.assert_array_equal(traced.sample["boxes"], batch["boxes"][index])
        layers = traced.steps[-1]["layers"]
        drawn = np.array([item["box"] for layer in layers for item in layer["items"]]).reshape(-1, 4)
        np.testing.assert_allclose(drawn, batch["boxes"][index], atol=0.01)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_viewing_changes_nothing(photos: Path, kind: str, ask: Callable[..., Any]) -> None:
    """The state of the loader, its next batches, global generators, and what the dataset has repaired."""
    cut = next(iter(photos.rglob("0.jpg")))
    cut.write_bytes(cut.read_bytes()[:-200])

    def make() -> Any:
        return make_loader(kind, ps.StoreDataset(photos, ("image", "label"), OWN, on_truncated="repair"))

    viewed, other = make(), make()
    before, of_random, of_torch = viewed.state_dict(), random.getstate(), torch.get_rng_state()
    asker = ask(viewed)
    for path in ("steps/0?epoch=2", "draws/0?n=3", "batch?epoch=1&number=2", "source"):
        asker.json(f"api/model/{path}")

    assert viewed.state_dict() == before
    assert random.getstate() == of_random
    assert torch.equal(torch.get_rng_state(), of_torch)
    assert viewed.dataset.repaired == []
    for mine, theirs in zip(viewed, other, strict=True):
        assert_equal(mine, theirs)
