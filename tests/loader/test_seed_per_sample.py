"""seed_per_sample: code that draws from the global generators draws the same, whoever builds the sample."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.rng import sample_scope, uniforms
from penstock.sample import ArraySpec, SampleKeys

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

WORKERS: dict[str, dict[str, Any]] = {
    "serial": {},
    "1 thread": {"num_workers": 1, "workers": "threads"},
    "2 threads": {"num_workers": 2, "workers": "threads"},
    "5 threads": {"num_workers": 5, "workers": "threads"},
    "1 process": {"num_workers": 1, "workers": "processes"},
    "2 processes": {"num_workers": 2, "workers": "processes"},
    "5 processes": {"num_workers": 5, "workers": "processes"},
}


def drawn() -> tuple[float, ...]:
    """A number of each global generator that is there."""
    torch = sys.modules.get("torch")
    of_torch = () if torch is None else (float(torch.rand(())),)
    return (random.random(), float(np.random.random()), float(np.random.normal()), *of_torch)  # noqa: NPY002  # the global one is meant


class Augmented:
    """A user's dataset that knows nothing of keys."""

    def __init__(self, n: int = 23) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        return index, np.array(drawn())


class AllAtOnce(Augmented):
    """The same, where torch's ``__getitems__`` is there too."""

    def __getitems__(self, indices: Any) -> list[Any]:
        return [self[index] for index in indices]


class Keyed(ps.Dataset[Any]):
    """The same by penstock's ``load_samples``, with the sample's scope entered as stores do."""

    def __len__(self) -> int:
        return 23

    def load_samples(self, indices: Any, keys: SampleKeys) -> list[Any]:
        """As the interface has it."""
        found = []
        for index, key in zip(indices, keys.indices.tolist(), strict=True):
            with sample_scope(keys.seed, keys.epoch, key):
                found.append((index, np.array(drawn())))
        return found


class Filled(ps.Dataset[Any]):
    """Rows, whose randomness is keyed anyway."""

    def __len__(self) -> int:
        return 23

    def spec(self) -> Any:
        """As the interface has it."""
        return ArraySpec((), np.dtype(np.int64)), ArraySpec((2,), np.dtype(np.float64))

    def fill(self, indices: Any, out: Any, keys: SampleKeys, rows: Any = None) -> None:
        """As the interface has it."""
        out[0][rows], out[1][rows] = indices, uniforms(keys, 0, 2)


class Stream(ps.IterableDataset[Any]):
    """A stream that draws, in parts."""

    def __iter__(self) -> Iterator[Any]:
        info = ps.get_worker_info()
        for i in range(*((0, 23) if info is None else (info.id, 23, info.num_workers))):
            yield i, np.array(drawn())


def mixed(samples: list[Any]) -> Any:
    """A collation that draws too, as MixUp does."""
    batch = ps.default_collate(samples)
    return *batch, np.array(drawn())


def load(dataset: Any, workers: str, **kwargs: Any) -> ps.DataLoader:
    """A loader of one kind."""
    given = {"batch_size": 4, "seed": 7, "seed_per_sample": True, **WORKERS[workers], **kwargs}
    return ps.DataLoader(dataset, **given)


def frozen(batches: Any) -> list[list[bytes]]:
    """Batches by their bytes."""
    return [[np.asarray(part).tobytes() for part in batch] for batch in batches]


@pytest.mark.parametrize("make", [Augmented, AllAtOnce, Keyed, Filled])
@pytest.mark.parametrize("workers", WORKERS)
def test_any_workers_draw_the_same(make: Any, workers: str) -> None:
    """Two shuffled epochs of augmented batches are the same to the byte for any number and kind of workers."""
    expected = load(make(), "serial", shuffle=True)
    found = load(make(), workers, shuffle=True)

    for _ in range(2):
        assert frozen(found) == frozen(expected)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("chunk_size", [1, 3])
def test_collation_draws_the_same(workers: str, chunk_size: int) -> None:
    """A collate_fn that draws does so from its batch's key, whatever chunks it was built in."""
    expected = frozen(load(Augmented(), "serial", collate_fn=mixed))

    assert frozen(load(Augmented(), workers, collate_fn=mixed, chunk_size=chunk_size)) == expected


def test_samples_and_epochs_and_seeds_differ() -> None:
    """What is drawn depends on the sample, the epoch and the seed: no two are alike."""
    one, other = load(Augmented(), "serial", collate_fn=mixed), load(Augmented(), "serial", seed=8, collate_fn=mixed)

    draws: list[float] = []
    for loader in (one, one, other):
        for _, samples, batch in loader:
            draws += [*samples.ravel().tolist(), *batch.tolist()]

    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("workers", ["serial", "2 threads", "2 processes"])
def test_a_resume_at_each_batch_draws_the_same(workers: str) -> None:
    """Resumed from any kind to any other number of workers, the tail is the one of a run that was not stopped."""
    others = ["serial", "5 threads", "1 process", "5 processes"]
    straight = frozen(load(Augmented(), "serial", shuffle=True, collate_fn=mixed))
    loader = load(Augmented(), workers, shuffle=True, collate_fn=mixed)
    walk = iter(loader)
    for stop in range(len(straight)):
        state = json.loads(json.dumps(loader.state_dict()))
        resumed = load(Augmented(), others[stop % len(others)], shuffle=True, collate_fn=mixed)
        resumed.load_state_dict(state)

        assert frozen(resumed) == straight[stop:]
        next(walk)


@pytest.mark.parametrize("workers", ["serial", "1 thread", "5 threads"])
def test_a_stream_is_one_for_all_threads(workers: str) -> None:
    """Threads pull from one stream: its samples draw the same, and also behind a resume."""
    straight = frozen(load(Stream(), "serial", collate_fn=mixed))
    loader = load(Stream(), workers, collate_fn=mixed)
    walk = iter(loader)
    for _ in range(2):
        next(walk)
    resumed = load(Stream(), "serial", collate_fn=mixed)
    resumed.load_state_dict(loader.state_dict())

    assert frozen(load(Stream(), workers, collate_fn=mixed)) == straight
    assert frozen(resumed) == straight[2:]


def test_replicas_of_a_stream_draw_differently() -> None:
    """Worker processes have parts of their own: a run repeats itself, and no two samples draw alike."""
    first, second = (frozen(load(Stream(), "2 processes", collate_fn=mixed)) for _ in range(2))
    draws = [batch[1].tolist() for batch in load(Stream(), "2 processes")]
    numbers = [number for batch in draws for row in batch for number in row]

    assert first == second
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("make", [Augmented, AllAtOnce, Filled, Stream])
@pytest.mark.parametrize("workers", WORKERS)
def test_the_generators_are_put_back(make: Any, workers: str) -> None:
    """After an epoch they stand where they stood before it."""
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  # the global one is meant
    before = random.getstate(), str(np.random.get_state(legacy=False))  # noqa: NPY002  # as above

    frozen(load(make(), workers))

    assert (random.getstate(), str(np.random.get_state(legacy=False))) == before  # noqa: NPY002  # as above


@pytest.mark.parametrize("make", [Augmented, AllAtOnce, Filled, Stream])
@pytest.mark.parametrize("workers", ["serial", "1 process", "2 processes", "5 processes"])
def test_a_training_loop_draws_as_it_would_alone(make: Any, workers: str) -> None:
    """Between two batches its own draws are what they would be without a loader; threads share its generators."""
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  # the global one is meant
    expected = [(random.random(), np.random.random()) for _ in range(4)]  # noqa: NPY002  # as above
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  # as above
    walk = iter(load(make(), workers))

    found = []
    for _ in range(4):
        next(walk)
        found.append((random.random(), np.random.random()))  # noqa: NPY002  # as above

    assert found == expected


@pytest.mark.parametrize("workers", ["serial", "2 threads", "2 processes"])
def test_generators_are_put_back_behind_an_error(workers: str) -> None:
    """A sample that raises, or is left out, leaves them as they were too."""

    class Bad(Augmented):
        def __getitem__(self, index: int) -> Any:
            sample = super().__getitem__(index)
            if index in {1, 6}:
                raise ValueError(index)
            return sample

    random.seed(1)
    before = random.getstate()
    with pytest.raises(ValueError, match="1"):
        next(iter(load(Bad(), workers)))
    skipping = load(Bad(), workers, on_error="skip")
    found = frozen(skipping)

    assert random.getstate() == before
    assert found == frozen(load(Bad(), "serial", on_error="skip"))
    assert len(skipping.left_out) == 2


def test_torch_and_its_generator_are_seeded_too() -> None:
    """Where torch is imported: for the CPU, and put back."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    before = torch.get_rng_state()

    found = [frozen(load(Augmented(), workers)) for workers in ("serial", "2 threads", "2 processes")]

    assert bool((torch.get_rng_state() == before).all())
    assert found[1:] == found[:1] * 2
    assert len(found[0][0][1]) == 4 * 4 * 8  # four draws of each of four samples


def test_without_it_workers_draw_their_own() -> None:
    """The option matters: by default a worker process draws from its own stream, as with torch."""
    two, five = (
        frozen(load(Augmented(), workers, seed_per_sample=False)) for workers in ("2 processes", "5 processes")
    )

    assert two != five
