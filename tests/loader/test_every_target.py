"""One batch, whoever builds it: images with boxes, labels, keypoints, masks and instances, byte by byte.

Each pipeline is tried with no worker, one, two and seven threads, two processes, and resumed in the middle by others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import transforms as T
from tests.effort import mark_slow
from tests.loader.annotated_shapes import COUNT, pack_shapes

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores, on purpose

WORKERS: Final[dict[str, dict[str, Any]]] = {
    "1 thread": {"num_workers": 1, "workers": "threads", "chunk_size": 1},
    "2 threads": {"num_workers": 2, "workers": "threads", "chunk_size": 3},
    "7 threads": {"num_workers": 7, "workers": "threads", "chunk_size": 2},
    "2 processes": {"num_workers": 2, "workers": "processes"},
}
OBJECTS: Final = ("image", "boxes", "labels", "keypoints", "instances", "score", "index")
NAMED: Final = {name: name for name in OBJECTS}
FILLED: Final[list[Any]] = [
    T.Decode(),
    T.RandomAffine(20, (0.1, 0.1), (0.7, 1.3), 10, mask_fill=9),
    T.RandomIoUCrop(),
    T.HorizontalFlip(keypoint_pairs=[(0, 1)]),
    T.Resize((32, 40)),
    T.SanitizeBoundingBoxes(min_size=2, min_visible=0.1),
    T.ToLayout("CHW", "float32"),
]
SIZES: Final[list[Any]] = [
    T.Decode(),
    T.RandomZoomOut(side_range=(1, 2)),
    T.RandomShortestSize((24, 30), 60),
    T.RandomRotation(15),
    T.SanitizeBoundingBoxes(min_size=2),
]
MIXED: Final[list[Any]] = [T.RandomPerspective(), T.CenterCrop(40), T.SanitizeBoundingBoxes(min_size=2)]


def _form(form: str, transform: list[Any]) -> Callable[[Path], Any]:
    return lambda path: ps.StoreDataset(path, NAMED, transform, batch_form=form)


def _mixture(make: Callable[[Any], Any]) -> Callable[[Path], Any]:
    return lambda path: make(ps.StoreDataset(path, NAMED, ragged="flat"))


DATASETS: Final[dict[str, Callable[[Path], Any]]] = {
    **{f"filled {form}": _form(form, FILLED) for form in ("torchvision", "rows", "ultralytics", "nested")},
    "filled flat": lambda path: ps.StoreDataset(path, OBJECTS, FILLED, ragged="flat"),
    "filled padded": lambda path: ps.StoreDataset(path, OBJECTS, FILLED, ragged="padded"),
    "sizes": _form("torchvision", SIZES),
    "sizes nested": _form("nested", SIZES),
    "with a mask": lambda path: ps.StoreDataset(path, NAMED | {"mask": "mask"}, FILLED, ragged="list"),
    "Mosaic": _mixture(lambda inner: ps.Mosaic(inner, 24, transform=MIXED)),
    "SampleMixUp": _mixture(lambda inner: ps.SampleMixUp(ps.Mosaic(inner, 24), transform=MIXED)),
    "CopyPaste": _mixture(lambda inner: ps.CopyPaste(ps.Mosaic(inner, 24), p=1, overlap=1, transform=MIXED)),
}


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with ellipses."""
    return pack_shapes(tmp_path_factory.mktemp("packs") / "shapes.lmdb")


def make_loader(data: Any, seed: int = 3, **options: Any) -> ps.DataLoader:
    """A loader that draws an order of its own."""
    return ps.DataLoader(data, **{"batch_size": 5, "seed": seed, "shuffle": True, **options})


def to_bytes(value: Any) -> Any:
    """Everything of a batch that can differ: structure, types, shapes, dtypes and bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return {name: to_bytes(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, [to_bytes(each) for each in value]
    if isinstance(value, ps.Ragged):
        return "Ragged", to_bytes(value.values), to_bytes(value.offsets)
    if isinstance(value, ps.NestedTensor):
        return "NestedTensor", to_bytes(value.tensors), to_bytes(value.mask)
    return value


def run(loader: ps.DataLoader) -> list[Any]:
    """An epoch."""
    return [to_bytes(batch) for batch in loader]


QUICK: Final = ("filled ultralytics", "filled padded", "sizes nested", "with a mask", "Mosaic", "CopyPaste")


@pytest.mark.parametrize("name", mark_slow(DATASETS, QUICK))
def test_batches_are_the_same_from_any_workers_and_after_a_resume(pack: Path, name: str) -> None:
    """Two epochs from threads and processes are those without workers, and so is what is left of a resumed epoch."""
    serial = make_loader(DATASETS[name](pack))
    expected = [run(serial), run(serial)]

    assert expected[0] != expected[1]
    for workers, options in WORKERS.items():
        loader = make_loader(DATASETS[name](pack), **options)
        assert run(loader) == expected[0], workers
        begun = iter(loader)
        head = [to_bytes(next(begun)) for _ in range(2)]
        resumed = make_loader(DATASETS[name](pack))
        resumed.load_state_dict(loader.state_dict())
        assert head + [to_bytes(batch) for batch in begun] == expected[1], workers
        assert head + run(resumed) == expected[1], workers


OPS: Final = st.sampled_from(
    [
        T.HorizontalFlip(),
        T.VerticalFlip(),
        T.RandomCrop(28, pad_if_needed=True),
        T.RandomResizedCrop(30),
        T.RandomRotation(40, mask_fill=3),
        T.RandomAffine(10, (0.2, 0.1), (0.5, 1.5), 20),
        T.RandomPerspective(p=1),
        T.Pad(3, mask_fill=1),
        T.Letterbox(36),
        T.RandomZoomOut(side_range=(1, 2)),
        T.RandomIoUCrop(),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.ScaleJitter(32, (0.5, 1.5)),
        T.SanitizeBoundingBoxes(min_size=3),
        T.SanitizeBoundingBoxes(min_visible=0.4),
    ]
)


@settings(
    max_examples=settings().max_examples // 8,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    ops=st.lists(OPS, max_size=5),
    last=st.sampled_from([[T.Resize((24, 32)), T.ToLayout("CHW", "uint8")], [T.CenterCrop(30)], []]),
    form=st.sampled_from(["torchvision", "nested"]),
    seed=st.integers(0, 99),
    stop=st.integers(0, COUNT // 5),
)
def test_any_pipeline_gives_one_batch(
    pack: Path, ops: list[T.Op], last: list[T.Op], form: str, seed: int, stop: int
) -> None:
    """Any ops, filled or built one by one: serial, threads, and a resume in the middle give the same bytes."""

    def make(**options: Any) -> ps.DataLoader:
        data = ps.StoreDataset(pack, NAMED, [T.Decode(), *ops, *last], batch_form=form)
        return make_loader(data, seed, **options)

    expected = run(make())
    threads = make(**WORKERS["2 threads"])
    begun = iter(threads)
    head = [to_bytes(next(begun)) for _ in range(stop)]
    resumed = make()
    resumed.load_state_dict(threads.state_dict())
    assert head + run(resumed) == expected
    assert [*head, *map(to_bytes, begun)] == expected
