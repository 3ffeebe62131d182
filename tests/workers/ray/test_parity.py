"""Actors give what worker processes give: the same batches, byte for byte, with the same numbers of every generator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
import penstock.torch
from penstock import transforms as T
from penstock.workers.ray.running_actor import RunningActor
from tests.ray_cluster import send_by_value
from tests.workers.ray.datasets import Global, Stream

Load = Callable[..., Any]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(params=["numpy", "torch"])
def load(request: pytest.FixtureRequest, ray: Any) -> Load:
    """Makes a loader of either kind."""
    send_by_value("tests.workers.ray.datasets")
    return ps.DataLoader if request.param == "numpy" else penstock.torch.DataLoader


def content(batch: Any) -> Any:
    """A batch as bytes."""
    if isinstance(batch, dict):
        return {name: content(value) for name, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [content(value) for value in batch]
    return np.asarray(batch).tobytes()


def refuse(*_: Any) -> Any:
    """What the system does where the actor's process cannot be seen."""
    raise PermissionError


def mapping_of(array: Any) -> str:
    """The line of /proc/self/maps in which an array lies."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, stop = (int(part, 16) for part in line.split(" ")[0].split("-"))
        if start <= address < stop:
            return line
    return ""


def pictures(folder: Path) -> ps.StoreDataset:
    """Some pictures with random crops."""
    draw = np.random.default_rng(0)
    for number in range(24):
        path = folder / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (90, 120, 3), np.uint8)).save(path)
    augment = [T.Decode(), T.RandomResizedCrop(112), T.HorizontalFlip()]
    return ps.StoreDataset(ps.open(folder), fields=("image", "label"), transform=augment)


def test_two_epochs_of_every_kind_of_dataset_are_those_of_processes(load: Load, tmp_path: Path) -> None:
    """Pictures that are filled, samples with global randomness, streams; workers persist from epoch to epoch."""
    for dataset in (pictures(tmp_path), Global(), Stream()):
        epochs = []
        for workers in ("processes", "ray"):
            shuffle = None if isinstance(dataset, Stream) else True
            loader = load(
                dataset, 8, shuffle, num_workers=2, workers=workers, seed=3, persistent_workers=True, stall_timeout=60
            )
            epochs.append([[content(batch) for batch in loader] for _ in range(2)])
            loader.close()

        assert epochs[0] == epochs[1], type(dataset).__name__
        assert len(epochs[0][0]) >= 3


def test_a_state_of_processes_is_resumed_by_actors(load: Load) -> None:
    """In mid-epoch, with the states of the workers' generators; and the other way round."""
    for dataset in (Global(), Stream()):
        shuffle = None if isinstance(dataset, Stream) else True

        def make(workers: str, dataset: Any = dataset, shuffle: bool | None = shuffle) -> Any:
            return load(dataset, 8, shuffle, num_workers=2, workers=workers, seed=5)

        whole = [content(batch) for batch in make("processes")]
        for before, after in (("processes", "ray"), ("ray", "processes")):
            first, second = make(before), make(after)
            begun = iter(first)
            taken = [content(batch) for batch in itertools.islice(begun, 2)]
            second.load_state_dict(first.state_dict())
            begun.close()

            assert taken + [content(batch) for batch in second] == whole


@pytest.mark.parametrize("is_near", [True, False])
def test_batches_are_writable_and_stay_as_they_are(load: Load, is_near: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is not written again by later batches, nor what the user writes lost; on this node and on others."""
    if not is_near:
        monkeypatch.setattr(RunningActor, "_open", refuse)
    loader = load(Global(), 8, num_workers=2, workers="ray")
    kept = []
    for number, batch in enumerate(loader):
        mapping = mapping_of(np.asarray(batch))
        assert "plasma" in mapping or (is_near and "penstock-slot" in mapping), "it was copied"
        batch[:, 5:] = -number
        kept.append(batch)

    for number, batch in enumerate(kept):
        values = np.asarray(batch)
        assert values[:, 0].tolist() == list(range(8 * number, 8 * number + 8))
        assert (values[:, 5:] == -number).all()
