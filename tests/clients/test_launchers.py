"""The line that each launcher needs: two ranks of torchrun, SLURM, Accelerate, Lightning, Ray Train, really started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.launched import COUNT, EPOCHS
from tests.servers.starting import hold_port

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAM: Final = "tests.clients.launched"
TIMEOUT_S: Final = 240.0


def run(*commands: list[str], **variables: str) -> None:
    """Run programs beside one another, to their ends; each gets the variables, in which ``{}`` is its number."""
    started = []
    for number, command in enumerate(commands):
        env = {
            **{name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}},
            "PYTHONPATH": str(ROOT),
            **{name: value.format(number) for name, value in variables.items()},
        }
        started.append(
            subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        for process in started:
            said, _ = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0, said
    finally:
        for process in started:
            process.kill()
            process.wait()


def check(folder: Path, source: str, kind: str = "DataLoader") -> list[dict[str, Any]]:
    """Each sample once an epoch, in equal steps and in a new order; a loader in mid-epoch goes on on each rank."""
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    assert [(each["rank"], each["num_replicas"], each["source"]) for each in found] == [(n, 2, source) for n in (0, 1)]
    for epoch in range(EPOCHS):
        one, other = (each["epochs"][epoch] for each in found)
        assert [len(step) for step in one] == [len(step) for step in other]
        assert sorted(index for step in (*one, *other) for index in step) == list(range(COUNT))
    for each in found:
        assert each["epochs"][0] != each["epochs"][1]
        assert each["resumed"] == each["epochs"][0]
        assert each["kind"] == kind
    return found


@pytest.fixture
def port() -> Iterator[str]:
    """A port of the test's own, at which ranks meet."""
    with hold_port() as held:
        yield str(held.getsockname()[1])


def test_torchrun(tmp_path: Path) -> None:
    """Two processes of ``torchrun``."""
    starts = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    run([*starts, "-m", PROGRAM, "torchrun", str(tmp_path)])

    check(tmp_path, "torch.distributed")


def test_slurm(tmp_path: Path) -> None:
    """Two tasks with the variables of ``srun --ntasks 2``."""
    task = ["-m", PROGRAM, "slurm", str(tmp_path)]
    run(
        task,
        task,
        SLURM_JOB_ID="7",
        SLURM_STEP_ID="0",
        SLURM_NTASKS="2",
        SLURM_PROCID="{}",
        SLURM_LOCALID="{}",
        SLURM_NODEID="0",
        SLURM_STEP_TASKS_PER_NODE="2",
    )

    check(tmp_path, "slurm")


def test_accelerate(tmp_path: Path, port: str) -> None:
    """Two processes of ``accelerate launch``, which on CPUs alone would start one."""
    starts = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    ports = ["--main_process_port", port, "--mixed_precision", "no", "--dynamo_backend", "no"]
    run([*starts, *ports, "-m", PROGRAM, "accelerate", str(tmp_path)], HF_HOME=str(tmp_path))

    check(tmp_path, "torch.distributed", "DataLoaderShard")


def test_lightning(tmp_path: Path, port: str) -> None:
    """Two devices of ``Trainer(strategy="ddp")``; the state of rank 0 is in the checkpoint that both resume from."""
    run(["-m", PROGRAM, "lightning", str(tmp_path)], MASTER_PORT=port)

    check(tmp_path, "torch.distributed")


def test_ray_train(tmp_path: Path) -> None:
    """Two workers of ``TorchTrainer``, with penstock's sampler, and with the one of ``prepare_data_loader``."""
    run([str(ROOT / "tests" / "clients" / "launched.py"), "ray", str(tmp_path)])

    check(tmp_path, "torch.distributed")
    found = check(tmp_path / "prepared", "torch.distributed")
    assert sorted(index for each in found for step in each["moved"] for index in step) == list(range(COUNT))
