"""tune chooses the fewest workers that are as good as any, within a budget of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils import data as td  # noqa: E402  # it needs torch

from penstock import doctor  # noqa: E402  # as above
from penstock.doctor.judge.tuning import TunedSetting, Tuning, _Tuner  # noqa: E402  # as above
from penstock.doctor.trials.trial_child import StepShape, TrialOrder  # noqa: E402  # as above
from penstock.doctor.trials.trials import Trial, run_trial  # noqa: E402  # as above
from penstock.errors import ArgumentError  # noqa: E402  # as above


class Zeros(td.Dataset[Any]):
    """Samples of 4 kB."""

    def __len__(self) -> int:
        return 5000

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(1024)


class Runs:
    """Trials that are made: a batch waits for 40 ms, and a worker has 50 MB; what was ordered is kept."""

    def __init__(self) -> None:
        self.orders: list[TrialOrder] = []

    def __call__(self, loader: Any, order: TrialOrder, *, measure_memory: bool = False) -> Trial:
        """As many batches a second as the workers, or the trainer, would take."""
        self.orders.append(order)
        workers = order.change.count_workers(loader)
        batch_s = max(0.04 / workers, order.step.wall_ns / 1e9) if workers else 0.04 + order.step.wall_ns / 1e9
        memory = 50_000_000 if measure_memory else 0
        return Trial(1 / batch_s, 20, "", 8 * 4096, memory)


def tune_on_four_cores(runs: Runs, memory_bytes: int | None = None, step: StepShape | None = None) -> Tuning:
    """The setting for a loader with one worker."""
    loader = td.DataLoader(Zeros(), batch_size=8, num_workers=1)
    return _Tuner(loader, step or StepShape(), memory_bytes, 600.0, None, runs, cores=4).run()


def test_enough_workers_and_no_more() -> None:
    """Batches of 40 ms for steps of 25 ms: two workers are enough, one is not, and many bring nothing."""
    runs, step = Runs(), StepShape(25e6, 5e6)

    tuning = tune_on_four_cores(runs, step=step)

    assert tuning.best.num_workers == 2
    assert tuning.code == "DataLoader(..., num_workers=2, prefetch_factor=2)"
    assert (tuning.batch_bytes, tuning.worker_bytes) == (8 * 4096, 50_000_000)
    assert "rule of thumb: 4 x GPUs" in str(tuning)
    assert {(setting.num_workers, len(setting.measured)) for setting in tuning.settings} >= {(1, 5), (2, 4), (4, 5)}
    assert [order.step for order in runs.orders[:2]] == [StepShape()] * 2
    assert [order.change.arguments for order in runs.orders[:2]] == [
        {"num_workers": 0, "prefetch_factor": None}, {"num_workers": 2, "prefetch_factor": 2}
    ]  # fmt: skip
    assert {order.step for order in runs.orders[2:]} == {step}
    assert all(order.run_s < order.limit_s <= 600 for order in runs.orders)


def test_memory_bounds_the_workers() -> None:
    """Where one worker fits in memory, no more are chosen."""
    runs, step = Runs(), StepShape(5e6)

    free, tight = tune_on_four_cores(runs, step=step), tune_on_four_cores(runs, 75_000_000, step)

    assert free.best.num_workers > 2
    assert tight.best.num_workers == 1
    assert {setting.num_workers for setting in tight.settings} == {0, 1}
    assert 50_000_000 < tight.best.memory_bytes <= 75_000_000
    with pytest.raises(ArgumentError, match="memory_bytes must have room"):
        tune_on_four_cores(runs, 10)


def test_trials_of_a_loader_are_runs_of_it() -> None:
    """Batches and workers have the sizes that are found in child processes; the loader stays as it was."""
    loader = td.DataLoader(Zeros(), batch_size=8, num_workers=1)

    def run_briefly(loader: Any, order: TrialOrder, **options: Any) -> Trial:
        return run_trial(loader, replace(order, run_s=0.01, limit_s=120.0), **options)

    tuning = _Tuner(loader, StepShape(1e6), None, 600.0, None, run_briefly, cores=1).run()

    assert tuning.batch_bytes == 8 * 4096
    assert tuning.worker_bytes > 1 << 20
    assert tuning.best in tuning.settings
    assert tuning.best.measured
    assert loader.num_workers == 1


@pytest.mark.parametrize(
    ("speeds", "chosen"),
    [({1: 10.0, 2: 19.9, 4: 20.0}, 2), ({1: 10.0, 2: 15.0, 4: 20.0}, 4), ({0: 20.0, 2: 20.1}, 0)],
)
def test_fewest_within_two_percent(speeds: dict[int, float], chosen: int) -> None:
    """The fewest workers within 2 % of the best."""
    settings = [TunedSetting(number, 2, 0, measured=[speed], turns=[0]) for number, speed in speeds.items()]

    assert _Tuner._choose_best(settings).num_workers == chosen


def make_setting(number: int, speeds: dict[int, float]) -> TunedSetting:
    """A setting that was measured in these turns."""
    return TunedSetting(number, 2, 0, measured=list(speeds.values()), turns=list(speeds))


def test_settings_are_compared_within_turns() -> None:
    """Another program slows the second turn down, in which one worker was not measured."""
    one, two = make_setting(1, {0: 16.0, 2: 16.0}), make_setting(2, {0: 20.0, 1: 10.0, 2: 20.0})

    assert one.ratio_to(two) == 0.8
    assert make_setting(4, {3: 5.0}).ratio_to(two) == 0.25
    assert _Tuner._choose_best([one, two]) is two


@pytest.mark.parametrize(
    ("speeds", "further"),
    [
        ({1: 5.0, 2: 10.0}, 3),
        ({2: 10.0, 4: 20.0}, 6),
        ({2: 10.0, 4: 20.0, 8: 15.0}, 3),
        ({2: 20.0, 4: 15.0}, 1),
        ({0: 20.0, 1: 10.0}, None),
        ({4: 10.0, 8: 20.0}, 6),
    ],
)
def test_the_search_goes_on_beside_the_best(speeds: dict[int, float], further: int | None) -> None:
    """Beyond it if no other was measured on that side and the number may be chosen; else towards a neighbour."""
    possible = {(number, 2): TunedSetting(number, 2, 0) for number in (0, 1, 2, 3, 4, 5, 6, 7, 8)}
    settings = [make_setting(number, {0: speed}) for number, speed in speeds.items()]

    found = _Tuner._find_further(settings, possible)

    assert (None if found is None else found.num_workers) == further


def test_wrong_arguments() -> None:
    """What is no loader, and what gives no batch, is refused."""

    class Empty(Zeros):
        def __len__(self) -> int:
            return 0

    with pytest.raises(ArgumentError, match="must be a DataLoader"):
        doctor.tune([1, 2, 3])
    with pytest.raises(ArgumentError, match="must give batches"):
        doctor.tune(td.DataLoader(Empty()), budget_s=4)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """``penstock tune``."""
    command = [sys.executable, "-m", "penstock", "tune", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    """The command runs a script for some steps, prints the line of code to standard error, and writes it as JSON."""
    script = Path(__file__).parents[2] / "benches" / "planted" / "healthy.py"
    result = run_command(
        "--steps", "10", "--budget", "20", "--memory", "4GB", "--json", f"{tmp_path}/t.json", str(script)
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert "DataLoader(..., num_workers=" in result.stderr
    assert "rule of thumb: workers = cores" in result.stderr
    assert result.stderr.endswith("More: penstock explain limit-workers\n")
    written = json.loads((tmp_path / "t.json").read_text())
    assert written["code"] in result.stderr
    assert written["best"] in written["settings"]


def test_wrong_size() -> None:
    """A size that is none is refused before the script runs."""
    result = run_command("--memory", "3XB", "train.py")

    assert result.returncode == 2
    assert """--memory must be a number of bytes, or a text as "200GB", got '3XB'""" in result.stderr
