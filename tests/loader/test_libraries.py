"""seed_per_sample and libraries with generators of their own: those that are known are seeded for each sample."""

from __future__ import annotations

import json
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T
from penstock.datasets.seeded_libraries import LIBRARIES, SeededLibrary, find_seeders
from tests.datasets.test_store_dataset import MemoryStore

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

WORKERS: dict[str, dict[str, Any]] = {
    "serial": {},
    "1 thread": {"num_workers": 1, "workers": "threads"},
    "3 threads": {"num_workers": 3, "workers": "threads"},
    "1 process": {"num_workers": 1, "workers": "processes"},
    "3 processes": {"num_workers": 3, "workers": "processes"},
}


class Flip:
    """Draws as albumentations' transforms do: from two generators that its Compose has given it."""

    def __init__(self) -> None:
        self.set_random_state(np.random.default_rng(), random.Random())

    def set_random_state(self, random_generator: Any, py_random: Any) -> None:
        """As albumentations has it."""
        self.random_generator, self.py_random = random_generator, py_random

    def draw(self) -> tuple[float, ...]:
        """Two numbers."""
        return float(self.random_generator.random()), self.py_random.random()


class Compose(Flip):
    """Several, which share its generators."""

    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms
        super().__init__()

    def set_random_state(self, random_generator: Any, py_random: Any) -> None:
        """Passed on."""
        super().set_random_state(random_generator, py_random)
        for transform in self.transforms:
            transform.set_random_state(random_generator, py_random)

    def draw(self) -> tuple[float, ...]:
        """Those of each."""
        return tuple(number for transform in self.transforms for number in transform.draw())


class Randomizable:
    """Draws as MONAI's transforms do."""

    def __init__(self) -> None:
        self.R = np.random.RandomState()

    def set_random_state(self, seed: int | None = None, state: Any = None) -> Any:
        """As MONAI has it."""
        self.R = np.random.RandomState(seed) if state is None else state
        return self

    def draw(self) -> tuple[float, ...]:
        """One number."""
        return (float(self.R.random_sample()),)


class Augmenter:
    """Draws as imgaug's augmenters do."""

    def __init__(self) -> None:
        self.random_state = np.random.default_rng()

    def seed_(self, entropy: Any = None) -> None:
        """As imgaug has it."""
        self.random_state = np.random.default_rng(entropy)

    def draw(self) -> tuple[float, ...]:
        """One number."""
        return (float(self.random_state.random()),)


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of the libraries' names, whichever of them are installed."""
    classes: dict[str, dict[str, Any]] = {
        "albumentations": {"BaseCompose": Compose, "BasicTransform": Flip},
        "imgaug": {"augmenters": types.SimpleNamespace(Augmenter=Augmenter)},
        "monai": {"transforms": types.SimpleNamespace(Randomizable=Randomizable)},
    }
    assert list(classes) == list(LIBRARIES)
    for name, attributes in classes.items():
        module = types.ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)


OF_MODULE = Compose([Flip(), Flip()])


def helper() -> tuple[float, ...]:
    """A function of the user's that uses a global transform."""
    return OF_MODULE.draw()


class Held(ps.Dataset[Any]):
    """Transforms of all libraries in attributes, containers, and a function's surroundings."""

    def __init__(self, n: int = 17) -> None:
        self.n = n
        self.compose = Compose([Flip(), Compose([Flip()])])
        self.steps: dict[str, Any] = {"train": [Randomizable(), Augmenter()], "alone": (Flip(),)}
        inner = Augmenter()
        self.closure: Callable[[], tuple[float, ...]] = lambda: inner.draw()  # noqa: PLW0108  # what it holds is the point

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        held = [self.compose, *self.steps["train"], *self.steps["alone"]]
        drawn = [number for transform in held for number in transform.draw()]
        return index, np.array([*drawn, *self.closure(), *helper()])


class Stream(ps.IterableDataset[Any]):
    """The same as a stream."""

    def __init__(self) -> None:
        self.held = Held()

    def __iter__(self) -> Iterator[Any]:
        for index in range(17):
            yield self.held[index]


def load(dataset: Any, workers: str, **more: Any) -> ps.DataLoader:
    """A loader of one kind."""
    return ps.DataLoader(dataset, **{"batch_size": 4, "seed": 7, "seed_per_sample": True, **WORKERS[workers], **more})


def frozen(batches: Any) -> list[list[Any]]:
    """Batches by their numbers."""
    return [[np.asarray(part).tolist() for part in batch] for batch in batches]


@pytest.mark.parametrize("workers", WORKERS)
def test_any_workers_draw_the_same(workers: str) -> None:
    """Two shuffled epochs, whose transforms are new objects with states of their own each time."""
    expected, found = (load(Held(), kind, shuffle=True) for kind in ("serial", workers))

    for _ in range(2):
        assert frozen(found) == frozen(expected)


@pytest.mark.parametrize("workers", ["serial", "3 threads"])
def test_a_stream_draws_the_same(workers: str) -> None:
    """One stream for all threads."""
    assert frozen(load(Stream(), workers)) == frozen(load(Stream(), "serial"))


@pytest.mark.parametrize("workers", ["serial", "3 threads", "3 processes"])
def test_a_resumed_run_draws_the_same(workers: str) -> None:
    """From the middle of an epoch, with another number of workers."""
    straight = frozen(load(Held(), "serial", shuffle=True))
    loader = load(Held(), workers, shuffle=True)
    walk = iter(loader)
    next(walk)
    resumed = load(Held(), "1 process", shuffle=True)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))

    assert frozen(resumed) == straight[1:]


def test_samples_and_transforms_draw_apart() -> None:
    """No two numbers of an epoch are alike: transforms of a Compose, two of them, and two samples."""
    numbers = [number for _, rows in frozen(load(Held(), "serial")) for row in rows for number in row]

    assert len(numbers) == 17 * 13
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("workers", ["serial", "1 process"])
def test_without_it_nothing_is_seeded(workers: str) -> None:
    """By default the libraries' generators are left alone."""
    one, two = (frozen(load(Held(), workers, seed_per_sample=False)) for _ in range(2))

    assert one != two


class Noise:
    """A callable between ops."""

    def __init__(self) -> None:
        self.compose = Compose([Flip()])

    def __call__(self, image: Any) -> Any:
        """Brighter by chance."""
        return image + np.uint8(255 * self.compose.draw()[0])


def test_a_pipeline_s_callables_are_seeded() -> None:
    """Also where rows are filled: the callable stands between ops."""
    makers = []
    for workers in ("serial", "3 threads", "1 process"):
        pipeline = T.Pipeline([T.Decode(), T.CenterCrop(8), Noise(), T.ToLayout("HWC", "uint8")])
        makers.append(frozen(load(ps.StoreDataset(MemoryStore(), ("image", "label"), pipeline), workers)))

    assert makers[1] == makers[0] == makers[2]


def collate_with(compose: Compose) -> Any:
    """A collation that draws."""
    return lambda samples: [len(samples), np.array(compose.draw())]


@pytest.mark.parametrize("workers", ["3 threads", "1 process"])
def test_collation_is_seeded(workers: str) -> None:
    """By the batch."""
    expected = frozen(load(Held(), "serial", collate_fn=collate_with(Compose([Flip()]))))

    found = frozen(load(Held(), workers, collate_fn=collate_with(Compose([Flip()]))))

    assert found == expected
    assert len({str(numbers) for _, numbers in found}) == len(found)


def test_global_draws_are_what_they_were() -> None:
    """Seeding more than the global generators changes none of their numbers."""

    class Plain(ps.Dataset[Any]):
        def __init__(self, *held: Any) -> None:
            self.held = held

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            return random.random(), float(np.random.random())  # noqa: NPY002  # the global one is meant

    assert frozen(load(Plain(), "serial")) == frozen(load(Plain(Flip(), Augmenter(), Compose([Flip()])), "serial"))


# finding them


def test_only_the_outermost_are_seeded() -> None:
    """A Compose seeds what is in it; each place is found once."""
    compose = Compose([Flip(), Flip()])

    found = find_seeders([("dataset", {"a": compose, "b": [compose, Flip()]})])

    assert len(found) == 2


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_not_imported_is_not_looked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor imported for it."""
    for other in LIBRARIES:
        monkeypatch.delitem(sys.modules, other)

    assert find_seeders([("dataset", Held())]) == ()
    assert name not in sys.modules


def test_a_library_without_the_method_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """albumentations 1.x draws from the global generators, and has no set_random_state."""

    class Old:
        pass

    module: Any = types.ModuleType("albumentations")
    module.BaseCompose = module.BasicTransform = Old
    monkeypatch.setitem(sys.modules, "albumentations", module)

    assert find_seeders([("dataset", Old())]) == ()


def test_a_library_is_one_line() -> None:
    """Each says its name, the classes of its objects, and how one is seeded."""
    assert all(isinstance(library, SeededLibrary) for library in LIBRARIES.values())


def test_finding_them_is_bounded() -> None:
    """A large dataset is looked at in part: what lies at its beginning is found."""
    dataset = {"first": Flip(), "many": [{"x": [i]} for i in range(100_000)]}

    assert len(find_seeders([("dataset", dataset)])) == 1
