"""Ranks that are processes, as torchrun starts them: gloo and DDP on the CPU."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.distributed.training import EPOCHS, HANGS_S, N, make_samplers, train  # noqa: E402  # it needs torch

ROOT = Path(__file__).resolve().parents[2]


def run(launcher: str, ranks: int, task: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the task on so many ranks, to its end."""
    program = ["-m", "tests.distributed.training", task, str(folder)]
    if launcher == "torchrun":
        starts = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node"]
        command = [*starts, str(ranks), *program]
    else:
        command = [*program, str(ranks)]
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        try:
            stdout, stderr = job.communicate(timeout=HANGS_S + 40)
        except subprocess.TimeoutExpired:
            job.terminate()  # torchrun ends its ranks
            pytest.fail(f"{task} hangs:\n{job.communicate()[1]}")
    return subprocess.CompletedProcess(command, job.returncode, stdout, stderr)


def results(ranks: int, folder: Path) -> list[dict[str, Any]]:
    """What each rank has kept."""
    return [json.loads((folder / f"result-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same training in one process, without ranks."""
    torch.set_num_threads(1)
    return train(tmp_path_factory.mktemp("alone"))


def in_turn(ranks: list[list[Any]]) -> list[Any]:
    """What ranks have, in the order of the job."""
    return [index for turn in itertools.zip_longest(*ranks) for index in turn if index is not None]


def check_training(found: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    """Ranks take equal steps, together those of one process, to the same parameters."""
    for epoch in range(EPOCHS):
        steps = [[len(step) for step in rank["epochs"][epoch]] for rank in found]
        assert all(each == steps[0] for each in steps)
        together = [in_turn(list(ranks)) for ranks in zip(*(rank["epochs"][epoch] for rank in found), strict=True)]
        assert together == alone["epochs"][epoch]
        assert sorted(itertools.chain(*together)) == list(range(N))
    assert all(rank["weights"] == found[0]["weights"] for rank in found)
    assert_close(found[0]["weights"], alone["weights"])


def assert_close(found: Any, expected: Any) -> None:
    """Parameters are equal but for the order of sums."""
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, abs=1e-5)


@pytest.mark.parametrize("launcher", ["fork", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_two_ranks(launcher: str, tmp_path: Path, alone: dict[str, Any]) -> None:
    """Ranks are found before and after the process group is there; every sampler deals out one order.

    Uneven ranks train under ``Join``, and an evaluation counts each sample once, in a collective operation a step.
    """
    done = run(launcher, 2, "all", tmp_path)
    assert done.returncode == 0, done.stderr
    ranks = results(2, tmp_path)

    local = [{"num_replicas": 2, "rank": rank, "local_rank": rank, "local_size": 2} for rank in range(2)]
    assert [rank["before"] for rank in ranks] == [{**each, "source": "environment"} for each in local]
    assert [rank["train"]["world"] for rank in ranks] == [{**each, "source": "torch.distributed"} for each in local]
    check_training([rank["train"] for rank in ranks], alone)
    for name, sampler in make_samplers(1, 0).items():
        whole, dealt = list(sampler), [rank["orders"][name] for rank in ranks]
        assert len(dealt[0]) == len(dealt[1])
        assert in_turn(dealt) == [*whole, *whole[: len(whole) % 2]]
    uneven = [rank["uneven"] for rank in ranks]
    assert [len(rank["steps"]) for rank in uneven] == [4, 3]
    assert sorted(itertools.chain(*(step for rank in uneven for step in rank["steps"]))) == list(range(13))
    assert uneven[0]["weights"] == uneven[1]["weights"]
    assert [rank["evaluate"] for rank in ranks] == [[[5, 13], [5, 13]]] * 2


@pytest.mark.parametrize("launcher", ["fork", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_four_ranks_of_which_one_is_killed_resume_as_three(
    launcher: str, tmp_path: Path, alone: dict[str, Any]
) -> None:
    """What four have had until they saved, and three after it, is what one process has; so are the parameters.

    torch's loader gets the states of all ranks, the other one that of rank 0 alone.
    """
    killed = run(launcher, 4, "die", tmp_path)
    assert killed.returncode != 0
    assert "-9" in killed.stderr
    check_training([rank["train"] for rank in results(4, tmp_path)], alone)
    saved = [torch.load(path)["seen"] for path in sorted(tmp_path.glob("state-*.pt"))]
    assert len(saved) == 4

    resumed = run(launcher, 3, "resume", tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    ranks = results(3, tmp_path)

    before = [in_turn(list(step)) for step in zip(*saved, strict=True)]
    epochs = [
        [in_turn(list(step)) for step in zip(*(rank["train"]["epochs"][epoch] for rank in ranks), strict=True)]
        for epoch in range(EPOCHS)
    ]
    assert len(before) == 3
    assert [before + epochs[0], epochs[1]] == alone["epochs"]
    assert all(rank["train"]["weights"] == ranks[0]["train"]["weights"] for rank in ranks)
    assert_close(ranks[0]["train"]["weights"], alone["weights"])
    assert [rank["evaluate"] for rank in ranks] == [[[5, 13], [5, 13]]] * 3
