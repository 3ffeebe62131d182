"""penstock.torch.DataLoader: the same batches as tensors, over the same memory."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch
from penstock.errors import ArgumentError, OptionalPackageError  # noqa: E402  # as above
from penstock.stores.images.store import FilesStore  # noqa: E402  # as above
from tests.pack.images import make_photos  # noqa: E402  # as above

DTYPES = [np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64, np.bool_, np.complex64]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ps.Store]:
    """A folder of twelve pictures, opened."""
    with ps.open(make_photos(tmp_path_factory.mktemp("store") / "photos")) as opened:
        yield opened


@pytest.mark.parametrize("given", ["store", "subset", "torch's subset", "the default collate_fn", "batch sampler"])
def test_a_store_is_no_dataset(store: ps.Store, given: str) -> None:
    """Records are not collated: before the first batch one sentence says what to write instead."""
    subsets = {"subset": pt.Subset, "torch's subset": torch.utils.data.Subset}
    dataset: Any = subsets[given](store, [0, 1]) if given in subsets else store
    kwargs: dict[str, Any] = {"collate_fn": pt.default_collate} if given == "the default collate_fn" else {}
    kwargs |= {"batch_sampler": [[0, 1]]} if given == "batch sampler" else {}

    with pytest.raises(ArgumentError, match=r"got the records of .*photos.*StoreDataset\(store, .*collate_fn"):
        iter(pt.DataLoader(dataset, **kwargs))


@pytest.mark.parametrize("module", [ps, pt])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_records_are_batched_by_a_function_of_the_user_s(store: ps.Store, module: Any, num_workers: int) -> None:
    """A collate_fn that takes records has them; without batches each record is given as it is."""
    keys = list(store.keys())

    batches = list(module.DataLoader(store, 5, collate_fn=keys_of, num_workers=num_workers))
    single = list(module.DataLoader(store, None, num_workers=num_workers))

    assert batches == [keys[:5], keys[5:10], keys[10:]]
    assert [record.key for record in single] == keys


def keys_of(records: list[Any]) -> list[str]:
    """The keys of some records."""
    return [record.key for record in records]


class Keys(FilesStore):
    """A store whose items are numbers."""

    def __getitem__(self, index: Any) -> Any:
        return int(index)


def test_a_store_with_items_of_its_own_is_a_dataset(store: ps.Store) -> None:
    """A subclass that overrides `__getitem__` has the last word."""
    dataset = Keys(store.url.removeprefix("files://"))

    for module in (ps, pt):
        assert [len(batch) for batch in module.DataLoader(dataset, 5)] == [5, 5, 2]


def arrays(dtype: Any) -> ps.ArrayDataset:
    """Rows of one dtype."""
    return ps.ArrayDataset(x=(np.arange(60).reshape(20, 3) % 2).astype(dtype), y=np.arange(20))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_tensors_are_the_arrays(dtype: Any, num_workers: int) -> None:
    """Every dtype that torch has, float16 and bool too: same values as in NumPy's loader."""
    kwargs: dict[str, Any] = {"batch_size": 6, "num_workers": num_workers}
    numpy, tensors = ps.DataLoader(arrays(dtype), **kwargs), pt.DataLoader(arrays(dtype), **kwargs)

    for _ in range(2):
        for a, t in zip(numpy, tensors, strict=True):
            assert isinstance(t["x"], torch.Tensor)
            assert t["x"].numpy().dtype == dtype
            assert np.array_equal(a["x"], t["x"].numpy())
            assert np.array_equal(a["y"], t["y"].numpy())


def test_no_copy_is_made_and_memory_waits_for_tensors() -> None:
    """A tensor lies in the slot itself, and the slot is not used again while a view of the tensor lives."""
    loader = pt.DataLoader(arrays(np.float32), 5, num_workers=1, prefetch_factor=1)
    kept, copies = [], []
    for batch in loader:
        kept.append(batch["x"][1:3])
        copies.append(batch["x"][1:3].clone())
        del batch
    pool = loader._memory.pool
    assert pool is not None
    held = pool.allocated - pool.free
    same = all(torch.equal(a, b) for a, b in zip(kept, copies, strict=True))
    addresses = {tensor.untyped_storage().data_ptr() for tensor in kept}
    kept.clear()

    assert same
    assert held == len(addresses) == 4
    assert all(address % 4096 == 0 for address in addresses)
    assert pool.free == min(pool.keep, 4)


def test_samples_are_collated_by_torch() -> None:
    """The general path is torch.utils.data.default_collate: strings stay, numbers and arrays become tensors."""

    class Samples(ps.Dataset[Any]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return {"a": np.float16(index), "b": (torch.ones(2), "s", 1.5), "c": True}

    batch = next(iter(pt.DataLoader(Samples(), 2, num_workers=1)))

    assert batch["a"].dtype == torch.float16
    assert batch["b"][0].shape == (2, 2)
    assert list(batch["b"][1]) == ["s", "s"]
    assert batch["b"][2].dtype == torch.float64
    assert batch["c"].dtype == torch.bool


def test_torchs_own_collation_may_be_named() -> None:
    """Giving torch's default_collate is giving none: rows are still filled."""
    loader = pt.DataLoader(arrays(np.float32), 5, collate_fn=torch.utils.data.default_collate)
    next(iter(loader))

    assert loader._memory.pool is not None


def test_without_batches_samples_are_converted() -> None:
    """batch_size=None: arrays become tensors, tuples lists."""
    sample = next(iter(pt.DataLoader(ps.ArrayDataset(np.ones((3, 2))), None)))

    assert type(sample) is list
    assert isinstance(sample[0], torch.Tensor)


def test_torchs_datasets_and_samplers_are_welcome() -> None:
    """Map-style datasets, Subset, samplers and batch samplers of torch.utils.data."""
    data = torch.utils.data

    tensors = data.TensorDataset(torch.arange(10), torch.arange(10) * 2)
    subset = data.Subset(tensors, [7, 3, 5])
    weighted = data.WeightedRandomSampler([0.0, 1.0, 0.0], 6)
    batches = data.BatchSampler(data.SequentialSampler(tensors), 4, drop_last=False)

    assert [x.tolist() for x, _ in pt.DataLoader(subset, 2, num_workers=2)] == [[7, 3], [5]]
    assert [x.tolist() for x, _ in pt.DataLoader(tensors, 3, sampler=weighted)] == [[1, 1, 1], [1, 1, 1]]
    assert [len(x) for x, _ in pt.DataLoader(tensors, batch_sampler=batches, num_workers=1)] == [4, 4, 2]


def test_importing_penstock_does_not_import_torch() -> None:
    """Nor does running a loader over arrays."""
    code = (
        "import sys, numpy, penstock as ps\n"
        "for _ in ps.DataLoader(ps.ArrayDataset(numpy.arange(9)), 2, shuffle=True, num_workers=1): pass\n"
        "assert 'torch' not in sys.modules"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing penstock.torch where torch is absent says what to install."""
    for name in [name for name in sys.modules if name == "torch" or name.startswith(("torch.", "penstock.torch"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises((OptionalPackageError, ImportError)):
        import penstock.torch  # noqa: F401  # the import is the test


def test_what_cannot_be_pickled_is_hinted_at() -> None:
    """The error is pickle's own; a warning says, as torch's does, what to do about it."""
    loader: Any = pt.DataLoader(
        range(4), 2, num_workers=1, multiprocessing_context="spawn", worker_init_fn=lambda _: None
    )

    with (
        pytest.warns(UserWarning, match="Got pickle error when"),
        pytest.raises((AttributeError, pickle.PicklingError)),
    ):
        iter(loader)


class FailsOnce(ps.SequentialSampler):
    """A sampler with random access whose order cannot be had the first time."""

    failed = False

    def order(self, start: int, stop: int, epoch: int | None = None) -> Any:
        """As the base, but once."""
        if not self.failed:
            self.failed = True
            raise OSError("the order's file is being copied")
        return super().order(start, stop, epoch)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_epoch_ends_behind_an_error_of_a_sampler_with_random_access(num_workers: int) -> None:
    """It is asked for positions: which ones are behind the error is not known. The next epoch is whole."""
    numbers = pt.TensorDataset(torch.arange(6))
    loader = pt.DataLoader(numbers, 2, sampler=FailsOnce(range(6)), num_workers=num_workers, stall_timeout=60)
    walk = iter(loader)

    with pytest.raises(OSError, match="being copied"):
        next(walk)
    assert next(walk, None) is None
    assert [x.tolist() for (x,) in loader] == [[0, 1], [2, 3], [4, 5]]


class Arrays:
    """A map-style dataset of arrays, as penstock.StoreDataset gives them."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return np.full((2, 2), index, np.float32)


@pytest.mark.parametrize(
    "collate", [torch.stack, torch.cat, lambda batch: batch[0].unsqueeze(0), lambda batch: batch[0].permute(1, 0)]
)
def test_a_collate_fn_for_tensors_that_gets_arrays_is_told_so(collate: Any) -> None:
    """The note says which dataset gives tensors; an attribute that no tensor has either is another error."""
    with pytest.raises((TypeError, AttributeError)) as caught:
        next(iter(pt.DataLoader(Arrays(), 2, collate_fn=collate)))
    with pytest.raises(AttributeError) as other:
        next(iter(pt.DataLoader(Arrays(), 2, collate_fn=lambda batch: batch[0].nonsense)))

    assert any("penstock.torch.StoreDataset tensors" in note for note in caught.value.__notes__)
    assert not any("StoreDataset" in note for note in other.value.__notes__)
