"""find_world: the ranks of a job, by whoever knows them."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

import penstock as ps
from penstock.errors import ArgumentError
from penstock.ranks import World, assume_world, find_world, hand_world

TORCHRUN = {"WORLD_SIZE": "8", "RANK": "5", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1"}
SLURM = {
    "SLURM_STEP_ID": "0", "SLURM_NTASKS": "11", "SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own job is not this one's."""
    for name in (*TORCHRUN, *SLURM):
        monkeypatch.delenv(name, raising=False)


def put(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """Set variables of the environment."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def put_group(monkeypatch: pytest.MonkeyPatch, num_replicas: int, rank: int) -> None:
    """Make every framework's process group one of this size."""
    monkeypatch.setattr("penstock.ranks.find_ranks", lambda: (num_replicas, rank))


def put_ray_train(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
    """A module that answers as ray.train does in a training function; or as it does elsewhere, with an error."""
    context = SimpleNamespace(
        get_world_size=lambda: 6, get_world_rank=lambda: 3, get_local_rank=lambda: 1, get_local_world_size=lambda: 2
    )

    def get_context() -> object:
        if error is not None:
            raise error
        return context

    module = ModuleType("ray.train")
    vars(module)["get_context"] = get_context
    monkeypatch.setitem(sys.modules, "ray.train", module)


def test_a_program_of_its_own_is_one_rank() -> None:
    """Where nothing says that there are ranks, the source is empty."""
    assert find_world() == ps.find_world() == World(1, 0, 0, 1, source="")
    assert ps.World is World


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (TORCHRUN, World(8, 5, 1, 4, source="environment")),
        ({"WORLD_SIZE": "2", "RANK": "1"}, World(2, 1, source="environment")),
        ({"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}, World(2, 1, source="environment")),
        ({"WORLD_SIZE": "1"}, World(source="environment")),
        ({"WORLD_SIZE": "", "RANK": ""}, World()),
        (SLURM, World(11, 9, 1, 3, source="slurm")),
        ({**SLURM, "SLURM_NODEID": "1", "SLURM_PROCID": "5"}, World(11, 5, 1, 4, source="slurm")),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "?"}, World(11, 9, source="slurm")),
        ({**SLURM, "SLURM_NODEID": "3"}, World(11, 9, source="slurm")),
        ({**SLURM, "SLURM_STEP_ID": "0", **TORCHRUN}, World(8, 5, 1, 4, source="environment")),
    ],
)
def test_variables_of_launchers_are_read(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: World
) -> None:
    """torchrun's before SLURM's, which start it; what is said of the machine only where all of it is."""
    put(monkeypatch, **variables)

    assert find_world() == expected


def test_the_script_of_a_job_is_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """sbatch gives its script the number of tasks and the number 0; only srun starts tasks."""
    put(monkeypatch, **SLURM)
    monkeypatch.delenv("SLURM_STEP_ID")

    assert find_world() == World()


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"WORLD_SIZE": "4", "RANK": "4"}, "RANK must be below WORLD_SIZE in the environment, got 4 and 4"),
        ({"WORLD_SIZE": "0", "RANK": "0"}, "RANK must be below WORLD_SIZE in the environment, got 0 and 0"),
        ({"WORLD_SIZE": "four", "RANK": "0"}, "WORLD_SIZE in the environment must be .* integer, got 'four'"),
        ({"WORLD_SIZE": "4", "RANK": "-1"}, "RANK in the environment must be .* integer, got '-1'"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE=4 without RANK: set both, or neither, or call torch.distributed"),
        ({"RANK": "0"}, "RANK=0 without WORLD_SIZE"),
        ({**TORCHRUN, "LOCAL_RANK": "4"}, "LOCAL_RANK must be below LOCAL_WORLD_SIZE in the environment, got 4 and 4"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "9"}, "LOCAL_WORLD_SIZE must be at most WORLD_SIZE, got 9 and 8"),
        ({**SLURM, "SLURM_PROCID": "11"}, "SLURM_PROCID must be below SLURM_NTASKS in the environment, got 11 and 11"),
    ],
)
def test_variables_that_contradict_are_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], text: str
) -> None:
    """One rank by mistake would train on every sample: a wrong environment is an error."""
    put(monkeypatch, **variables)

    with pytest.raises(ArgumentError, match=text):
        find_world()


@pytest.mark.parametrize(
    ("variables", "local"),
    [
        (TORCHRUN, (1, 4)),
        ({**TORCHRUN, "RANK": "6"}, (0, 1)),
        ({**SLURM, "SLURM_NTASKS": "8", "SLURM_PROCID": "5", "SLURM_STEP_TASKS_PER_NODE": "3(x3)"}, (1, 3)),
        ({}, (0, 1)),
    ],
)
def test_a_process_group_is_believed_first(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], local: tuple[int, int]
) -> None:
    """The variables only add what they know of this machine, where they are those of the same ranks."""
    put(monkeypatch, **variables)
    put_ray_train(monkeypatch)
    put_group(monkeypatch, 8, 5)

    assert find_world() == World(8, 5, *local, source="torch.distributed")


def test_ray_train_is_asked_in_a_training_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without torch; the variables of whoever started Ray are not those of the function."""
    put(monkeypatch, **TORCHRUN)
    put_ray_train(monkeypatch)

    assert find_world() == World(6, 3, 1, 2, source="ray.train")


@pytest.mark.parametrize("error", [RuntimeError("not a training function"), DeprecationWarning("a trial of Tune")])
def test_outside_a_training_function_ray_knows_no_ranks(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The program has imported ray.train to start a trainer, say."""
    put_ray_train(monkeypatch, error)

    assert find_world() == World()


def test_a_context_of_no_ranks_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's older context is there everywhere; outside a training function it counts no rank on the machine."""
    put_ray_train(monkeypatch)
    context = sys.modules["ray.train"].get_context()
    for name, value in {"world_size": 1, "world_rank": 0, "local_rank": 0, "local_world_size": 0}.items():
        setattr(context, f"get_{name}", lambda value=value: value)

    assert find_world() == World()


@pytest.mark.parametrize("numbers", [(2, 2, 0, 1), (0, 0, 0, 1), (2, 0, 1, 1), (2, 0, 0, 3), (2, -1, 0, 1)])
def test_a_world_is_one_that_can_be(numbers: tuple[int, int, int, int]) -> None:
    """Numbers out of range are refused by name."""
    with pytest.raises(ArgumentError, match=r"(rank must be in \[0, num_replicas\)|local_rank must be in)"):
        World(*numbers)


def test_a_worker_process_is_of_the_ranks_that_it_is_handed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count before all that a process finds, until others are assumed."""
    put(monkeypatch, **TORCHRUN)
    handed, assumed = World(3, 2, source="torch.distributed"), World(7, 1)
    hand_world(handed)
    try:
        with assume_world(assumed):
            inside = find_world()
        outside = find_world()
    finally:
        hand_world(None)

    assert (inside, outside) == (assumed, handed)
    assert find_world().rank == 5
