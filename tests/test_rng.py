"""penstock.rng(): one generator for each sample and each batch, whoever builds them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.datasets.base import fetch
from penstock.rng import batch_scope, sample_scope
from penstock.sample import SampleKeys
from tests.datasets.test_store_dataset import MemoryStore

KEYS = SampleKeys(3, 1, np.arange(9, dtype=np.int64))
WORKERS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2, "workers": "threads"},
    {"num_workers": 1, "workers": "processes"},
    {"num_workers": 2, "workers": "processes"},
]


def numbers(count: int) -> list[float]:
    """As many calls of ``penstock.rng()``, one number each."""
    return [float(ps.rng().random()) for _ in range(count)]


class Draws(ps.Dataset[Any]):
    """Samples of three transforms, each of which asks for the generator."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return np.array([index, *numbers(3)])


class Loads(Draws):
    """The same, loaded many at once under scopes of its own."""

    def load_samples(self, indices: Any, keys: SampleKeys) -> list[Any]:
        """As the interface has it."""
        samples = []
        for index, drawn in zip(indices, keys.indices.tolist(), strict=True):
            with sample_scope(keys.seed, keys.epoch, drawn):
                samples.append(np.array([index, *numbers(3)]))
        return samples


def pair(samples: list[Any]) -> Any:
    """A collation that draws twice."""
    return np.stack(samples), np.array(numbers(2))


def test_calls_within_a_sample_continue_one_generator() -> None:
    """Two calls draw what one generator draws twice, and not the same number."""
    with sample_scope(3, 1, 17):
        apart = numbers(4)
    with sample_scope(3, 1, 17):
        together = ps.rng().random(4).tolist()
        same = ps.rng() is ps.rng()

    assert apart == together
    assert len(set(apart)) == 4
    assert same


def test_the_first_numbers_of_a_sample_are_those_of_its_key() -> None:
    """What a sample draws first is fixed by (seed, epoch, index): no release may change it without a word."""
    drawn = []
    for key in ((3, 1, 17), (4, 1, 17), (3, 2, 17), (3, 1, 18)):
        with sample_scope(*key):
            drawn.append(numbers(1)[0])

    assert len(set(drawn)) == 4
    assert drawn[0] == float(
        np.random.Generator(
            np.random.Philox(counter=np.array([0, 0, 17, 1 | 1 << 63], np.uint64), key=np.array([3, 1], np.uint64))
        ).random()
    )


def test_a_scope_within_its_own_sample_goes_on() -> None:
    """A wrapper that enters the sample's scope again, as pipelines and datasets do, does not begin it again."""
    with sample_scope(3, 1, 17):
        expected = numbers(3)

    with sample_scope(3, 1, 17):
        first = numbers(1)
        with sample_scope(3, 1, 17):
            second = numbers(1)
        third = numbers(1)

    assert first + second + third == expected


def test_a_scope_within_another_sample_is_its_own() -> None:
    """A sample built inside another one draws by its own key, and the outer one goes on behind it."""
    with sample_scope(3, 1, 17):
        expected = numbers(2)
    with sample_scope(3, 1, 18):
        inner = numbers(1)

    with sample_scope(3, 1, 17):
        first = numbers(1)
        with sample_scope(3, 1, 18):
            between = numbers(1)
        second = numbers(1)

    assert first + second == expected
    assert between == inner


def test_a_sample_that_is_built_again_draws_the_same() -> None:
    """A scope that has ended leaves nothing: a second try, another worker and a resumed run begin alike."""
    drawn = []
    for _ in range(2):
        with sample_scope(3, 1, 17):
            drawn.append(numbers(3))

    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("make", [Draws, Loads])
@pytest.mark.parametrize("wrap", ["bare", "subset", "concat", "both"])
def test_wrappers_do_not_begin_a_sample_again(make: Any, wrap: str) -> None:
    """Through Subset and ConcatDataset, loaded many at once or one by one, a sample draws as it does alone."""
    inner = make()
    several: Any = ps.ConcatDataset([ps.Subset(inner, range(12)), make()])
    wrapped: dict[str, Any] = {
        "bare": inner,
        "subset": ps.Subset(inner, range(12)),
        "concat": ps.ConcatDataset([inner, make()]),
        "both": ps.Subset(several, list(range(24))),
    }
    dataset = wrapped[wrap]
    expected = [sample[1:].tolist() for sample in fetch(Draws(), list(range(9)), KEYS)]

    found = [sample[1:].tolist() for sample in fetch(dataset, list(range(9)), KEYS)]

    assert found == expected
    assert len({number for row in found for number in row}) == 27


@pytest.mark.parametrize("make", [Draws, Loads])
@pytest.mark.parametrize("workers", WORKERS, ids=str)
def test_any_workers_draw_the_same(make: Any, workers: dict[str, Any]) -> None:
    """Samples and collation draw the same for any kind and number of workers, also behind a resume."""
    given: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 5, "collate_fn": pair}
    expected = [[part.tolist() for part in batch] for batch in ps.DataLoader(make(), **given)]
    loader = ps.DataLoader(make(), **given, **workers)
    batches = iter(loader)
    first = next(batches)
    resumed = ps.DataLoader(make(), **given)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))

    found = [first, *batches]

    assert [[part.tolist() for part in batch] for batch in found] == expected
    assert [[part.tolist() for part in batch] for batch in resumed] == expected[1:]
    drawn = [number for samples, batch in expected for number in (*np.ravel(np.array(samples)[:, 1:]), *batch)]
    assert len(set(drawn)) == len(drawn)


def test_collation_has_a_generator_of_its_own() -> None:
    """It continues from call to call, and is that of no sample and of no other batch."""
    with batch_scope(3, 1, 17):
        expected = ps.rng().random(2).tolist()
    with sample_scope(3, 1, 17):
        of_sample = numbers(2)
    with batch_scope(3, 1, 18):
        other = numbers(2)

    with batch_scope(3, 1, 17):
        found = numbers(2)

    assert found == expected
    assert len({*found, *of_sample, *other}) == 6


def test_an_op_does_not_take_a_batch_for_a_sample() -> None:
    """A pipeline that collation calls has no sample's key: each call is fresh, as outside of a loader."""
    flip = T.Pipeline([T.HorizontalFlip()])
    image = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)

    with batch_scope(3, 1, 17):
        results = {flip(image).tobytes() for _ in range(64)}

    assert len(results) == 2


def test_outside_of_samples_and_batches_there_is_none() -> None:
    """There is no key to draw by; the error says where the generator is."""
    with pytest.raises(ps.ArgumentError, match=r"__getitem__, a transform or collate_fn"):
        ps.rng()


def test_callables_of_one_pipeline_draw_apart() -> None:
    """Two callables of a pipeline draw other numbers each, and filled rows are what samples are."""
    seen: list[float] = []

    def draw(image: Any) -> Any:
        seen.extend(numbers(1))
        return image

    pipeline = T.Pipeline([T.Decode(), T.RandomResizedCrop(8), draw, draw, draw])
    dataset = ps.StoreDataset(MemoryStore(), "image", pipeline)
    images = [bytes(record.fields["image"]) for record in dataset.store.read(range(4))]

    fetch(dataset, [0, 1, 2, 3], KEYS[:4])
    by_sample, seen[:] = seen[:], []
    pipeline.compile("image").run(images, KEYS[:4])

    assert len(set(by_sample)) == 12
    assert seen == by_sample


def test_two_calls_of_a_pipeline_in_one_sample_draw_apart() -> None:
    """Two views of one picture are two views; the first is the one that filled rows show."""
    crop = T.Pipeline([T.RandomResizedCrop(8), T.HorizontalFlip()])
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    expected = crop(image, keys=KEYS[4:5])

    with sample_scope(3, 1, 4):
        first, second, third = (crop(image) for _ in range(3))
    with sample_scope(3, 1, 4):
        again = [crop(image) for _ in range(3)]

    np.testing.assert_array_equal(first, expected)
    assert len({view.tobytes() for view in (first, second, third)}) == 3
    for view, same in zip((first, second, third), again, strict=True):
        np.testing.assert_array_equal(view, same)


def test_a_given_key_is_the_key() -> None:
    """``keys=`` names the sample's numbers, however often the pipeline was called before."""
    crop = T.Pipeline([T.RandomResizedCrop(8)])
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    expected = crop(image, keys=KEYS[4:5])

    with sample_scope(3, 1, 4):
        crop(image)
        found = crop(image, keys=KEYS[4:5])

    np.testing.assert_array_equal(found, expected)


class TwoViews(ps.Dataset[Any]):
    """A picture twice, as contrastive learning has it."""

    def __init__(self) -> None:
        self.views = T.Pipeline([T.Decode(), T.RandomResizedCrop(8), T.ToLayout("CHW", "uint8")])
        self.store = MemoryStore()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        image = bytes(self.store.read([index])[0].fields["image"])
        return self.views(image), self.views(image)


@pytest.mark.parametrize("workers", WORKERS[1:], ids=str)
def test_two_views_are_the_same_two_with_any_workers(workers: dict[str, Any]) -> None:
    """They differ from each other, and not from one kind of workers to another."""
    given: dict[str, Any] = {"batch_size": 6, "seed": 5}
    expected = list(ps.DataLoader(TwoViews(), **given))

    found = list(ps.DataLoader(TwoViews(), **given, **workers))

    for (one, two), (first, second) in zip(expected, found, strict=True):
        assert not any((a == b).all() for a, b in zip(one, two, strict=True))
        np.testing.assert_array_equal(one, first)
        np.testing.assert_array_equal(two, second)
