"""Ray Train: workers that are killed, and started again, in the same ``fit`` or in another one of its name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.clients.resume.lives import Case, Life, assert_resumes, check_steps, live, read, steps_of
from tests.clients.resume.ray_lives import CASES, ELASTIC, LIVES, find_log, whole

ROOT: Final = Path(__file__).resolve().parents[3]
TIMEOUT_S: Final = 280.0

pytestmark = pytest.mark.timeout(TIMEOUT_S + 20)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs: one session of Ray has them."""
    folder = tmp_path_factory.mktemp("ray")
    env = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ray_lives.py")), str(folder)], cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT)}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-5000:]
    return folder


@pytest.mark.parametrize("name", CASES)
def test_workers_that_are_killed(ran: Path, tmp_path: Path, name: str) -> None:
    """Each rank goes on from its own file in the checkpoint."""
    case = CASES[name]
    expected = live(whole, tmp_path, case, Life())
    batches = sum(word == "batch" for word, _ in expected[0])

    for life in LIVES:
        for rank in range(case.ranks):
            assert_resumes(expected[rank], read(find_log(ran / name, life.resume, rank)), life, batches)


def test_on_another_number_of_ranks(ran: Path, tmp_path: Path) -> None:
    """Two workers, then three: every step has the same samples."""
    expected = steps_of(live(whole, tmp_path, ELASTIC[0][0], Life()))
    check_steps(expected, Case(batch=12, samples=48))

    for case, life in ELASTIC:
        noted = [read(find_log(ran / "elastic", life.resume, rank)) for rank in range(case.ranks)]
        assert steps_of(noted) == expected[life.resume : life.kill or None]
