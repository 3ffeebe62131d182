"""What a subclass or a wrapper of torch's loader can reach is reached here too: each hook gives torch's batches."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator
from multiprocessing.context import SpawnContext
from queue import Queue
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import penstock.torch as pt  # noqa: E402  # it needs torch
from penstock.errors import ArgumentError  # noqa: E402  # as above
from penstock.torch.loader.iteration import DataLoaderIterator  # noqa: E402  # as above
from tests.effort import mark_slow  # noqa: E402  # as above

TORCHS = torch.utils.data.DataLoader
KINDS = (TORCHS, pt.DataLoader)
N = 22
WORKERS: dict[str, dict[str, Any]] = {
    "serial": {},
    "processes": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True},
}

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Numbers(pt.Dataset[Any]):
    """Each index, and a random number; a list of indices is an index too."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(index), torch.rand(())


class Stream(pt.IterableDataset[Any]):
    """The same as a stream, one in each worker."""

    def __iter__(self) -> Iterator[Any]:
        return ((torch.as_tensor(index), torch.rand(())) for index in range(N))


def frozen(batch: Any) -> Any:
    """A batch that can be compared."""
    return repr(batch)


def epochs(loader: Any) -> Any:
    """Three epochs, of which the second is left behind its second batch."""
    return [[frozen(batch) for batch in itertools.islice(loader, end)] for end in (None, 2, None)]


def compared(make: Callable[[Any], Any], use: Callable[[Any], Any] = epochs) -> None:
    """Batches of a loader made from torch's class, and from ours; and torch's generator behind them."""
    found = []
    for kind in KINDS:
        torch.manual_seed(1)
        loader = make(kind)
        found.append((use(loader), torch.rand(()).item()))
        if hasattr(loader, "close"):
            loader.close()
        del loader

    assert found[1] == found[0]


class Passing:
    """An iterator around another one, as PyTorch Geometric's."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def __iter__(self) -> Passing:
        return self

    def __next__(self) -> Any:
        return [*next(self.iterator), "passed on"]

    def __len__(self) -> int:
        return len(self.iterator)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self.iterator._reset(loader, first_iter)


@pytest.mark.parametrize(
    ("dataset", "workers"),
    mark_slow(
        itertools.product((Numbers, Stream), WORKERS),
        [(Numbers, "serial"), (Numbers, "processes"), (Stream, "serial"), (Stream, "persistent")],
    ),
)
def test_get_iterator_may_return_any_iterator(dataset: Any, workers: str) -> None:
    """What it returns is what is iterated; its ``_reset`` begins the next epoch of persistent workers."""

    def make(kind: Any) -> Any:
        class Loader(kind):  # type: ignore[misc]  # the class is the parameter
            def _get_iterator(self) -> Any:
                return Passing(super()._get_iterator())

        return Loader(dataset(), 4, shuffle=dataset is Numbers or None, **WORKERS[workers])

    compared(make)


@pytest.mark.parametrize("workers", mark_slow(WORKERS, ("serial", "persistent")))
def test_get_iterator_may_return_one_of_torchs(workers: str) -> None:
    """torch's own iterators find in our loader what they look for."""
    theirs = torch.utils.data.dataloader

    def make(kind: Any) -> Any:
        class Loader(kind):  # type: ignore[misc]  # the class is the parameter
            def _get_iterator(self) -> Any:
                several = theirs._MultiProcessingDataLoaderIter
                return (several if self.num_workers else theirs._SingleProcessDataLoaderIter)(self)

        return Loader(Numbers(), 4, shuffle=True, **WORKERS[workers])

    compared(make)


@pytest.mark.parametrize("workers", mark_slow(WORKERS, ("serial", "persistent")))
def test_an_iterator_can_be_made_of_a_loader_by_hand(workers: str) -> None:
    """``type(iterator)(loader)`` begins an epoch of its own, as fastai makes torch's iterators."""

    def run(loader: Any) -> Any:
        iterator = iter(loader)
        found = [frozen(next(iterator))]
        other = type(iterator)(loader)
        assert other is not iterator
        return [*found, [frozen(batch) for batch in other], [frozen(batch) for batch in iterator]]

    compared(lambda kind: kind(Numbers(), 4, shuffle=True, **WORKERS[workers]), run)


def test_an_iterator_is_made_of_a_loader_of_ours() -> None:
    """The error for another loader says what makes one of it."""
    with pytest.raises(ArgumentError, match=r"got DataLoader; penstock.torch.adopt\(loader\)"):
        DataLoaderIterator(TORCHS(Numbers()))


def test_an_iterator_can_be_reset_by_hand() -> None:
    """``iterator._reset(loader)`` begins the next epoch, with workers that are there or that are gone."""

    def run(loader: Any) -> Any:
        iterator = iter(loader)
        found = epochs(iterator)[:1]
        for _ in range(2):
            iterator._reset(loader)
            found.append([frozen(batch) for batch in iterator])
        assert loader._iterator is iterator
        return found

    compared(lambda kind: kind(Numbers(), 4, shuffle=True, **WORKERS["persistent"]), run)


def test_reset_brings_new_workers_where_they_were_stopped() -> None:
    """torch would wait for workers that are gone."""
    loader = pt.DataLoader(Numbers(), 4, **WORKERS["persistent"])
    iterator = iter(loader)
    iterator._shutdown_workers()

    iterator._reset(loader)

    assert [int(index) for batch in iterator for index in batch[0]] == list(range(N))
    loader.close()


@pytest.mark.parametrize("workers", mark_slow(WORKERS, ("serial", "persistent")))
def test_index_sampler_may_be_overridden(workers: str) -> None:
    """What the property gives is iterated, and counted by ``len``."""

    def make(kind: Any) -> Any:
        class Loader(kind):  # type: ignore[misc]  # the class is the parameter
            @property
            def _index_sampler(self) -> Any:
                return [[3, 1], [4], [1, 5, 9]]

        loader = Loader(Numbers(), 4, **WORKERS[workers])
        assert len(loader) == len(iter(loader)) == 3
        return loader

    compared(make)


@pytest.mark.parametrize(
    ("batches", "workers"),
    mark_slow(
        itertools.product((True, False), WORKERS),
        [(True, "serial"), (True, "persistent"), (False, "serial"), (False, "processes")],
    ),
)
def test_auto_collation_may_be_overridden(batches: bool, workers: str) -> None:
    """Whether a sampler's draw is one index, or a list of them, is for the property to say."""

    def make(kind: Any) -> Any:
        class Loader(kind):  # type: ignore[misc]  # the class is the parameter
            @property
            def _auto_collation(self) -> bool:
                return batches

            @property
            def _index_sampler(self) -> Any:
                return [[3, 1], [4], [1, 5, 9]]

        return Loader(Numbers(), 4 if not batches else None, **WORKERS[workers])

    compared(make)


def test_the_check_of_the_number_of_workers_may_be_overridden() -> None:
    """It is called by the constructor and by each ``iter()`` that starts workers."""
    calls: list[str] = []

    def make(kind: Any) -> Any:
        class Loader(kind):  # type: ignore[misc]  # the class is the parameter
            def check_worker_number_rationality(self) -> None:
                calls.append(kind.__module__)

        return Loader(Numbers(), 4, num_workers=2)

    compared(make)

    assert calls == [TORCHS.__module__] * 4 + [pt.DataLoader.__module__] * 4


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_the_context_may_be_overridden(method: str) -> None:
    """Workers are started by the context that the property gives."""

    def make(kind: Any) -> Any:
        class Loader(kind):  # type: ignore[misc]  # the class is the parameter
            @property
            def multiprocessing_context(self) -> Any:
                return multiprocessing.get_context(method)

            @multiprocessing_context.setter
            def multiprocessing_context(self, context: Any) -> None:
                pass

        return Loader(Numbers(), 4, num_workers=1)

    def run(loader: Any) -> Any:
        iterator = iter(loader)
        kinds = [type(worker).__name__ for worker in iterator._workers]
        return kinds, [frozen(batch) for batch in iterator]

    compared(make, run)


def test_iter_and_len_may_be_overridden() -> None:
    """As a subclass does that hands batches on."""

    def make(kind: Any) -> Any:
        class Loader(kind):  # type: ignore[misc]  # the class is the parameter
            def __iter__(self) -> Any:
                for batch in super().__iter__():
                    yield batch[0] * 2

            def __len__(self) -> int:
                return 2 * int(super().__len__())

        loader = Loader(Numbers(), 4, shuffle=True, num_workers=2)
        assert len(loader) == 12
        return loader

    compared(make)


class Endless:
    """Iterates a batch sampler for ever, as timm's and ultralytics' do to keep their workers."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from iter(self.sampler)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("way", ["unlocked", "object"])
def test_a_batch_sampler_may_be_put_in(way: str, num_workers: int) -> None:
    """One iterator for all epochs, over a batch sampler that never ends."""

    def make(kind: Any) -> Any:
        class Loader(kind):  # type: ignore[misc]  # the class is the parameter
            batch_sampler: Any

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                endless: Any = Endless(self.batch_sampler)
                if way == "object":
                    object.__setattr__(self, "batch_sampler", endless)
                else:
                    self._DataLoader__initialized = False
                    self.batch_sampler = endless
                    self._DataLoader__initialized = True
                self.iterator = super().__iter__()

            def __len__(self) -> int:
                return len(self.batch_sampler.sampler)

            def __iter__(self) -> Any:
                for _ in range(len(self)):
                    yield next(self.iterator)

        return Loader(Numbers(), 4, shuffle=True, num_workers=num_workers)

    compared(make)


CHANGES: dict[str, dict[str, Any]] = {
    "num_workers": {"num_workers": 1},
    "in_order": {"in_order": False},
    "others": {
        "collate_fn": lambda samples: [index for index, _ in samples],
        "generator": torch.Generator(),
        "prefetch_factor": 5,
        "worker_init_fn": torch.manual_seed,
        "timeout": 60,
        "multiprocessing_context": "fork",
        "pin_memory": False,
    },
}


@pytest.mark.parametrize("names", CHANGES)
def test_attributes_may_be_set_later(names: str) -> None:
    """Those that torch lets be set hold from the next ``iter()`` on."""

    def run(loader: Any) -> Any:
        first = [frozen(batch) for batch in loader]
        for name, value in CHANGES[names].items():
            setattr(loader, name, value.manual_seed(2) if name == "generator" else value)
        if names == "in_order":  # which worker draws for which batch is chance then
            return first, sorted(frozen(batch[0]) for batch in loader)
        return first, [frozen(batch) for batch in loader]

    compared(lambda kind: kind(Numbers(), 4, shuffle=True, num_workers=2), run)


def test_a_forgotten_iterator_brings_new_workers() -> None:
    """``loader._iterator = None``, as Lightning does it."""

    def run(loader: Any) -> Any:
        found = [[frozen(batch) for batch in loader]]
        loader._iterator = None
        return [*found, [frozen(batch) for batch in loader]]

    compared(lambda kind: kind(Numbers(), 4, shuffle=True, **WORKERS["persistent"]), run)


class ThreadAsProcess(threading.Thread):
    """What MONAI's thread workers are to a loader."""

    @property
    def pid(self) -> int:
        """Any number."""
        return id(self)


class ThreadContext(SpawnContext):
    """Starts threads under the names of processes, as MONAI's does."""

    _name = "spawn"
    Process = ThreadAsProcess  # type: ignore[assignment]  # that is the point
    Queue = Queue  # type: ignore[assignment]  # as above
    Event = threading.Event  # type: ignore[assignment]  # as above


@pytest.mark.parametrize("dataset", [Numbers, Stream])
def test_a_context_whose_processes_are_threads_gives_all_batches(dataset: Any) -> None:
    """Workers are threads then."""
    loader = pt.DataLoader(dataset(), 4, num_workers=2, multiprocessing_context=ThreadContext())
    threads = threading.active_count()
    iterator = iter(loader)

    assert threading.active_count() == threads + 2
    assert [int(index) for batch in iterator for index in batch[0]] == list(range(N))


def test_worker_threads_are_told_which_worker_they_are() -> None:
    """``worker_init_fn`` finds torch's worker info there, and nobody does afterwards."""
    dataset, found = Numbers(), []

    def note(worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        found.append((worker, info.id, info.num_workers, info.dataset is dataset))

    loader = pt.DataLoader(
        dataset, 4, num_workers=3, worker_init_fn=note, multiprocessing_context=ThreadContext(), seed=5
    )

    assert [int(index) for batch in loader for index in batch[0]] == list(range(N))
    assert sorted(found) == [(worker, worker, 3, True) for worker in range(3)]
    assert torch.utils.data.get_worker_info() is None


class Adapter:
    """Passes attribute access on to the loader inside and is reduced as that is, as Accelerate's adapter."""

    def __init__(self, dataset: Any, *unused: Any) -> None:
        self.base_dataloader = pt.DataLoader(dataset)
        self.state = self.base_dataloader.state_dict()

    def __getattr__(self, name: str) -> Any:
        if name == "base_dataloader":
            raise AttributeError(name)
        return getattr(self.base_dataloader, name)

    @property  # type: ignore[misc]  # as theirs
    def __class__(self) -> Any:
        return self.base_dataloader.__class__

    def __reduce__(self) -> Any:
        return Adapter, *super().__reduce__()[1:]


def test_a_wrapper_that_passes_attributes_on_can_be_pickled() -> None:
    """Nothing of the loader inside takes part in unpickling the wrapper."""
    wrapper = Adapter(Numbers())
    wrapper.__dict__["mine"] = 7

    again = pickle.loads(pickle.dumps(wrapper))

    assert vars(again).keys() == vars(wrapper).keys()
    assert again.base_dataloader is not again
    assert [int(batch[0]) for batch in again.base_dataloader] == list(range(N))


def pickle_again(loader: Any) -> Any:
    """A copy by pickling."""
    return pickle.loads(pickle.dumps(loader))


WAYS = (copy.copy, copy.deepcopy, pickle_again)


@pytest.mark.parametrize(
    ("way", "workers"),
    mark_slow(
        itertools.product(WAYS, WORKERS),
        [*((way, "serial") for way in WAYS), (copy.deepcopy, "persistent"), (pickle_again, "processes")],
    ),
)
def test_a_copy_in_mid_epoch_is_a_loader_of_its_own(way: Any, workers: str) -> None:
    """It begins with the next epoch, and the loader it was made of goes on."""

    def run(loader: Any) -> Any:
        iterator = iter(loader)
        first = [frozen(next(iterator))]
        if type(loader) is TORCHS and workers == "persistent":
            loader._iterator, kept = None, loader._iterator  # torch's iterators cannot be pickled
            twin = way(loader)
            loader._iterator = kept
        else:
            twin = way(loader)
        return first + [frozen(batch) for batch in iterator], [frozen(batch) for batch in twin]

    compared(lambda kind: kind(Numbers(), 4, shuffle=True, **WORKERS[workers]), run)


def test_a_loader_that_knows_itself_can_be_copied() -> None:
    """A cycle through a loader's attributes is no hindrance."""
    loader: Any = pt.DataLoader(Numbers(), 4)
    loader.me = loader

    for twin in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert twin.me is twin
        assert len(list(twin)) == 6
