"""Programs that end, or end Ray, while a loader uses it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.workers.ray.running_actor import RunningActor
from tests.faults.harness import run_script, wait_until_gone
from tests.ray_cluster import send_by_value
from tests.workers.ray.datasets import Slow
from tests.workers.ray.test_parity import refuse

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PREAMBLE = """
os.environ.update(RAY_AUTH_MODE="disabled", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
import ray
"""

BODY = """
if __name__ == "__main__":
    ray.init(address="local", num_cpus=4, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False,
             _temp_dir=sys.argv[1])
    scale = 2
    double = lambda samples: np.stack(samples) * scale
    loader = ps.DataLoader(Indices(64, width=40_000), 4, num_workers=2, workers="ray", collate_fn=double)
    iterator = iter(loader)
    first = next(iterator)
    assert first[:, 0].tolist() == [0, 2, 4, 6]
    pids = [process.pid for process in iterator.backend.processes]
    ray.shutdown()
    errors = []
    try:
        for _ in range(64):
            next(iterator)
    except StopIteration:
        pass
    except ps.WorkerError as error:
        errors.append(str(error))
    say(pids=[pid for pid in pids if pid], errors=errors)
    iterator.close()
"""


def test_ray_that_is_shut_down_in_mid_epoch_is_an_error(tmp_path: Path) -> None:
    """It says so; lambdas and classes of the script were sent; nothing is left of the actors."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'penstock-data[ray]'")
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # sockets have short paths
    result = run_script(tmp_path, PREAMBLE + BODY.replace("sys.argv[1]", repr(folder)), timeout_s=120)
    shutil.rmtree(folder, ignore_errors=True)

    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout.splitlines()[-1])
    assert "Ray was shut down" in told["errors"][0]
    wait_until_gone(told["pids"])


@pytest.mark.usefixtures("ray")
def test_nothing_is_left_in_memory_when_a_loader_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the statuses of actors on other nodes are deleted with the actors, that of a killed one too."""
    monkeypatch.setattr(RunningActor, "_open", refuse)
    send_by_value("tests.workers.ray.datasets")
    iterator: Any = iter(ps.DataLoader(Slow(), 4, num_workers=2, workers="ray"))
    next(iterator)
    files = [Path(worker.running._status_path) for worker in iterator.backend.workers]
    were_there = [file.exists() for file in files]
    os.kill(iterator.backend.processes[0].pid, 9)
    assert len(list(iterator)) == 11
    files += [Path(worker.running._status_path) for worker in iterator.backend.workers]

    assert any(were_there)
    assert [file for file in files if file.exists()] == []
