"""Two raylets on this machine as a cluster: nodes that are lost and added in the middle of an epoch."""

from __future__ import annotations

import importlib
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import SampleError
from tests.ray_cluster import end_ray, send_by_value
from tests.workers.ray.datasets import Deadly, Filled, Global, Slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}
ASK = ps.RayWorkers(num_cpus=1)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head node without CPUs, on which the trainer runs, and one node with one."""
    ray: Any = pytest.importorskip("ray", reason="Ray is not installed: pip install 'penstock-data[ray]'")
    utils: Any = importlib.import_module("ray.cluster_utils")
    end_ray()
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray imports
        made = utils.Cluster(
            initialize_head=True,
            head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False, "temp_dir": folder},
        )
        made.first = made.add_node(**NODE)
        ray.init(address=made.address, log_to_driver=False)
    send_by_value("tests.workers.ray.datasets")
    try:
        yield made
    finally:
        end_ray()
        made.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_node_that_is_killed_in_mid_epoch_changes_nothing(cluster: Any) -> None:
    """Its worker waits for a node that is added; where batches depend on their worker, all wait for it."""
    second = cluster.add_node(**NODE)
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 2, "num_workers": 2}
    whole = list(ps.DataLoader(Global(), workers="processes", **options))
    batches = []
    for batch in ps.DataLoader(Global(), workers=ASK, **options):
        batches.append(batch)
        if len(batches) == 3:
            cluster.remove_node(second, allow_graceful=False)
            cluster.add_node(**NODE)

    assert np.array_equal(batches, whole)


def test_batches_of_a_lost_node_are_built_by_the_others(cluster: Any) -> None:
    """Without another node, where samples depend on nothing but themselves."""
    second = cluster.add_node(**NODE)
    batches = []
    for batch in ps.DataLoader(Filled(200, 0.01), 4, num_workers=2, workers=ASK, stall_timeout=120):
        batches.append(np.array(batch[:, 0]))
        if len(batches) == 5:
            cluster.remove_node(second, allow_graceful=False)

    assert np.concatenate(batches).tolist() == list(range(200))


def test_a_node_that_is_added_works(cluster: Any) -> None:
    """A worker without room starts in the middle of the epoch, and is given tasks."""
    loader = ps.DataLoader(Filled(400, 0.005), 4, num_workers=2, workers=ASK, stall_timeout=120)
    iterator = iter(loader)
    batches = [np.array(next(iterator)[:, 0]) for _ in range(3)]
    cluster.add_node(**NODE)
    for batch in iterator:
        batches.append(np.array(batch[:, 0]))
        if count_working(loader) < 2:
            time.sleep(0.6)  # a minute for all batches

    assert np.concatenate(batches).tolist() == list(range(400))
    assert count_working(loader) == 2


def count_working(loader: Any) -> int:
    """Workers that have built a sample."""
    return len([worker for worker in loader.stats().workers if worker.samples])


def test_an_error_on_another_node_names_it(cluster: Any) -> None:
    """Such as a file that is not there."""

    class Missing(Slow):
        def __getitem__(self, index: int) -> Any:
            return np.fromfile("/a/folder/that/this/node/lacks")

    with pytest.raises((FileNotFoundError, SampleError)) as raised:
        next(iter(ps.DataLoader(Missing(), 4, num_workers=1, workers=ASK)))

    assert any("The worker runs on node 1" in note for note in raised.value.__notes__)


def test_a_sample_that_kills_its_actor_on_another_node_is_left_out(cluster: Any) -> None:
    """What the actor was doing is read on its node when it is dead."""
    loader = ps.DataLoader(Deadly(), 4, num_workers=1, workers=ASK, on_error="skip")

    assert [int(index) for batch in loader for index in batch[:, 0]] == [*range(13), *range(14, 24)]
    assert [record.index for record in loader.left_out] == [13]
