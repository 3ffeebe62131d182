"""``on="ray"`` on a cluster of two nodes on this machine: what is killed changes no byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import ArgumentError, StoreError, WorkerError
from penstock.pack.on_ray import tasks
from penstock.pack.on_ray.tasks import connected, run_on_ray
from tests.pack.images import make_photos
from tests.pack.on_ray.inline_tasks import run_inline
from tests.pack.on_ray.test_parts import ON, read_folder, read_records
from tests.ray_cluster import end_ray

COUNT = 64

pytest.importorskip("ray")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DRIVER = """
import os, signal, sys
import penstock as ps

def stop(now):
    if now.done >= 16:
        os.kill(os.getpid(), signal.SIGKILL)

ps.pack(sys.argv[1], sys.argv[2], on="ray", shard_size="20 kB", progress=stop)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster whose head has one CPU; the program uses it."""
    import ray
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        end_ray()
        node = {"num_cpus": 1, "object_store_memory": 80 << 20}
        made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        patch.setenv("RAY_ADDRESS", made.address)
        ray.init(address=made.address, log_to_driver=False)
        yield made
        end_ray()
        made.shutdown()  # type: ignore[no-untyped-call]  # Ray has no types for it


class KilledOnce:
    """Photographs; the first process of a cluster that reads one of them is killed."""

    def __init__(self, folder: Path, mark: Path, at: int) -> None:
        self.paths, self.mark, self.at = sorted(folder.rglob("*.jpg")), mark, at
        self.driver = os.getpid()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Path, int]:
        if index == self.at and self.mark.exists() and os.getpid() != self.driver:
            self.mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.paths[index], index


@pytest.mark.slow
def test_a_killed_worker_node_or_driver_changes_no_byte(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray runs lost tasks again; a driver that is started again keeps the parts that are finished."""
    photos = make_photos(tmp_path / "photos", COUNT)
    mark = tmp_path / "mark"
    source = KilledOnce(photos, mark, 30)
    with monkeypatch.context() as patch:
        run_inline(patch)
        ps.pack(photos, tmp_path / "whole.lmdb", **ON)
        ps.pack(source, tmp_path / "samples.lmdb", source_id="s", **ON)
    second = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    mark.touch()

    report = ps.pack(source, tmp_path / "worker.lmdb", source_id="s", **ON)

    assert not mark.exists()
    assert report.records == COUNT
    assert read_folder(tmp_path / "worker.lmdb") == read_folder(tmp_path / "samples.lmdb")

    killed = subprocess.run(
        [sys.executable, "-c", DRIVER, str(photos), str(tmp_path / "driver.lmdb")], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    first = (tmp_path / "driver.lmdb" / "00000.lmdb" / "data.mdb").stat()
    seen: list[int] = []

    def kill_node(now: Any) -> None:
        seen.append(now.done)
        if len(seen) == 3:
            cluster.remove_node(second, allow_graceful=False)

    report = ps.pack(photos, tmp_path / "driver.lmdb", progress=kill_node, **ON)

    assert seen == list(range(8, COUNT + 1, 8))
    assert report.resumed >= 16
    assert (tmp_path / "driver.lmdb" / "00000.lmdb" / "data.mdb").stat().st_mtime_ns == first.st_mtime_ns
    assert read_folder(tmp_path / "driver.lmdb") == read_folder(tmp_path / "whole.lmdb")


def fail(shared: str, task: int) -> int:
    """Raises for some tasks."""
    if task == 3:
        raise StoreError("no such record", store=shared, index=task)
    if task == 5:
        raise ZeroDivisionError("by 5")
    if task == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return task * task


def wait(fifo: Path, task: int) -> int:
    """Waits in one task until it is cancelled, and says both."""
    if task == 1:
        try:
            fifo.write_text("begun")
            for _ in range(6000):  # Ray interrupts Python code, not a call that waits
                time.sleep(0.05)
        except KeyboardInterrupt:
            fifo.write_text("cancelled")
            raise
    return task


@pytest.mark.slow
def test_tasks_are_cancelled_where_the_driver_ends(cluster: Any, tmp_path: Path) -> None:
    """Those under way are interrupted, and their processes take others."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with connected(), os.fdopen(os.open(fifo, os.O_RDWR), "rb", buffering=0) as said:
        results = run_on_ray(wait, fifo, range(50))
        assert next(results) == 0
        assert said.read(5) == b"begun"

        results.close()

        assert said.read(9) == b"cancelled"
        assert next(run_on_ray(wait, fifo, [2])) == 2


def test_errors_name_record_and_node_and_nothing_goes_on(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are in order; an error of the package keeps its class, others are WorkerErrors, as lost tasks are."""
    with connected():
        results = run_on_ray(fail, "s3://b/x", range(10))
        assert [next(results) for _ in range(3)] == [0, 1, 4]
        with pytest.raises(StoreError, match=r"no such record \[node='.*\(........\)', store='s3://b/x', index=3\]"):
            next(results)
        with pytest.raises(WorkerError, match=r"a task of Ray raised ZeroDivisionError: by 5 \[node="):
            list(run_on_ray(fail, "", [5]))
        monkeypatch.setattr(tasks, "_MAX_RETRIES", 1)
        with pytest.raises(WorkerError, match=r"a task of Ray was lost, 2 times or for good .* run again to resume"):
            list(run_on_ray(fail, "", [7]))
        with pytest.raises(ArgumentError, match="the source cannot be sent to the nodes of Ray"):
            next(run_on_ray(fail, (each for each in "ab"), [0]))  # type: ignore[arg-type]  # what a test is for
    photos = make_photos(tmp_path / "photos", 24)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ArgumentError, match=r"/proc/self/cwd/a\.lmdb of this machine is not on node .*\("):
        ps.pack(photos, "/proc/self/cwd/a.lmdb", **ON)  # another folder in each process

    assert not Path("a.lmdb").exists()
    assert ps.convert(photos, tmp_path / "converted.lmdb", **ON).ok
    assert read_records(tmp_path / "converted.lmdb") == read_records(photos)
    assert ps.index(photos, on="ray").indexed == 24


@pytest.mark.usefixtures("cluster")
def test_a_cluster_packs_coefficients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are those of tasks that run in this process, and the files come back."""
    photos = make_photos(tmp_path / "photos", 24)
    with monkeypatch.context() as patch:
        run_inline(patch)
        ps.pack(photos, tmp_path / "here.lmdb", transcode="coefficients", **ON)

    report = ps.pack(photos, tmp_path / "there.lmdb", transcode="coefficients", **ON)

    assert report.transcoded == 24
    assert read_folder(tmp_path / "there.lmdb") == read_folder(tmp_path / "here.lmdb")
    assert ps.verify(tmp_path / "there.lmdb", photos).ok
