"""``benches/device_session.sh`` without a device: its stages, what a failing one leaves, goals, parts and packages."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import penstock
from benches.device.bundle import read_requirements, split_file, write_parts, write_work
from benches.device.goals import GOALS, judge
from benches.device.packages import unpack_missing
from benches.device.report import make_report
from benches.device.session import STAGES, Plan, Session
from benches.device.testing import SANITIZED
from tests.photographs import write_photographs
from tests.torch.cuda.host_kernels import has_compiler

ROOT = Path(__file__).resolve().parents[2]

SAVES = "import sys, json; json.dump({'a': 1}, open(sys.argv[sys.argv.index('--result') + 1], 'w'));"
"""A stage that has found something."""


def run_plans(tmp_path: Path, minutes: float = 5, **codes: str) -> dict[str, Any]:
    """Run stages that are one line of Python each; what session.json holds."""
    plans = [Plan(name, 1, (sys.executable, "-c", code)) for name, code in codes.items()]
    Session(tmp_path, tmp_path / "out", minutes, rehearse=True).run(plans)
    record: dict[str, Any] = json.loads((tmp_path / "out" / "session.json").read_text())
    return record


def test_a_stage_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    """An exit code, a signal and a sentence are recorded, with what was found until then and the end of the log."""
    skips = SAVES.replace("{'a': 1}", "{'skipped': 'there is no engine'}")
    record = run_plans(
        tmp_path,
        fails=f"{SAVES} print('before'); raise ValueError('wrong')",
        crashes=f"{SAVES} import os; os.abort()",
        skips=skips,
        works=SAVES,
    )
    stages = record["stages"]

    assert {name: stage["state"] for name, stage in stages.items()} == {
        "fails": "failed",
        "crashes": "crashed",
        "skips": "skipped",
        "works": "done",
    }
    assert "ValueError: wrong" in stages["fails"]["log"]
    assert "SIGABRT" in stages["crashes"]["reason"]
    assert stages["skips"]["reason"] == "there is no engine"
    assert [stages[name]["figures"] for name in ("fails", "crashes", "works")] == [{"a": 1}] * 3
    assert "| crashes | crashed |" in (tmp_path / "out" / "session.md").read_text()
    assert (tmp_path / "out" / "log.txt").read_text().count("==> ") == 4


def test_a_stage_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    """At its limit; what it has saved is kept, and the next stage has the time that is left."""
    code = (
        "import json, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "json.dump({'child': child.pid}, open(sys.argv[sys.argv.index('--result') + 1], 'w'))\n"
        "time.sleep(600)\n"
    )
    stages = run_plans(tmp_path, minutes=0.4, hangs=code, works=SAVES)["stages"]

    assert (stages["hangs"]["state"], stages["works"]["state"]) == ("limit", "done")
    state = Path(f"/proc/{stages['hangs']['figures']['child']}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_what_is_saved_is_written_while_a_stage_runs(tmp_path: Path) -> None:
    """A session that is cut off leaves the figures of the stage under way, and ends it."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom benches.device.session import Plan, Session\n"
        f"plan = Plan('long', 1, (sys.executable, '-c', {SAVES + ' import time; time.sleep(600)'!r}))\n"
        f"Session(Path({str(tmp_path)!r}), Path({str(tmp_path / 'out')!r}), 9, rehearse=True).run([plan])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    file = tmp_path / "out" / "session.json"
    end = time.monotonic() + 120
    while not (file.exists() and json.loads(file.read_text())["stages"]["long"].get("figures")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 128 + signal.SIGTERM
    record = json.loads(file.read_text())["stages"]["long"]
    assert record["state"] == "interrupted"
    assert record["figures"] == {"a": 1}


def a_figure(median: float) -> dict[str, Any]:
    """A figure with this median."""
    return {"median": median, "low_quartile": median, "high_quartile": median, "n": 3, "unit": ""}


def a_record() -> dict[str, Any]:
    """A session that has reached every goal."""
    part = {"images": 800, "values": 9, "different": 0, "refused": 0, "damaged": 3, "examples": []}
    rates = {
        "penstock, decode on the device": (31_000, 21_000),
        "DALI mixed": (9_000, 2_000),
        "DALI mixed, b": (10_000, 1),
    }
    figures = {
        "pixels": {"T1, a loader": part, "damaged batches": dict(part), "context_is_whole": True},
        "loaders": {
            "T1, 4 cores": {
                name: {"rate": a_figure(rate), "per_processor_s": a_figure(per_s)}
                for name, (rate, per_s) in rates.items()
            }
            | {"FFCV": {"skipped": "ffcv is not installed"}}
        },
        "training": {
            "batch_size": 256, "cores": 4, "steps_of_a_turn": 9, "copy_ms": {"float32": 3.0},
            "penstock, decode on the device": {key: a_figure(0.01) for key in ("rate", "waits", "next_takes")},
            "float32, prefetch": {key: a_figure(0.97) for key in ("rate", "waits", "next_takes", "hidden")},
        },
    }  # fmt: skip
    stages = {name: {"state": "done", "seconds": 1.0, "figures": found} for name, found in figures.items()}
    return {"rehearsed": False, "started": "2026-01-02T03:04:05Z", "stages": stages, "goals": []}


def test_goals_are_judged_by_the_fastest_rival() -> None:
    """All are reached, and the report names them."""
    record = a_record()
    record["goals"] = judge(record)

    assert [goal["reached"] for goal in record["goals"]] == [True] * len(GOALS)
    assert "3.10 x (31,000 against 10,000 images/s of DALI mixed, b)" in record["goals"][0]["found"]
    assert "| FFCV | skipped: ffcv is not installed |" in make_report(record)


@pytest.mark.parametrize(
    ("path", "value", "missed"),
    [
        (("loaders", "T1, 4 cores", "penstock, decode on the device", "rate", "median"), 29_999, 0),
        (("loaders", "T1, 4 cores", "DALI mixed", "per_processor_s", "median"), 2_101, 1),
        (("pixels", "T1, a loader", "different"), 1, 2),
        (("pixels", "T1, a loader", "examples"), ["a status where the processor has pixels"], 2),
        (("pixels", "damaged batches", "damaged"), 0, 3),
        (("training", "penstock, decode on the device", "waits", "median"), 0.02, 4),
        (("training", "float32, prefetch", "hidden", "median"), 0.94, 5),
    ],
)
def test_each_goal_can_be_missed(path: tuple[str, ...], value: Any, missed: int) -> None:
    """One figure that is too low is one goal that is not reached."""
    record = a_record()
    first, *others, last = path
    part: Any = record["stages"][first]["figures"]
    for name in others:
        part = part[name]
    part[last] = value

    assert [number for number, goal in enumerate(judge(record)) if goal["reached"] is False] == [missed]


def test_a_goal_without_figures_is_neither_reached_nor_missed() -> None:
    """Of a stage that did not run, and of a rehearsal."""
    empty, rehearsed = a_record(), a_record()
    empty["stages"] = {}
    rehearsed["rehearsed"] = True

    for record in (empty, rehearsed):
        assert [goal["reached"] for goal in judge(record)] == [None] * len(GOALS)


def test_parts_join_to_the_whole(tmp_path: Path) -> None:
    """Pieces of at most so many bytes, in the order of their names."""
    whole = tmp_path / "whole"
    whole.write_bytes(os.urandom(2500))

    parts = split_file(whole, tmp_path / "base", 1000)

    assert [part.name for part in parts] == ["base.000", "base.001", "base.002"]
    assert b"".join(part.read_bytes() for part in sorted(tmp_path.glob("base.*"))) == whole.read_bytes()


@pytest.fixture
def carried(tmp_path: Path) -> Path:
    """A folder as ``build`` makes it, whose program prints its arguments and what was unpacked."""
    parts = []
    package = {"benches/device/__init__.py": "", "benches/device/__main__.py": LISTS}
    for group, files in {"base": package, "extras": {"more.txt": os.urandom(300).hex()}}.items():
        for name, text in files.items():
            (tmp_path / group / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / group / name).write_text(text)
        parts += write_parts(tmp_path / group, tmp_path / "folder", 100)
    sums = [f"{hashlib.sha256(part.read_bytes()).hexdigest()}  {part.name}\n" for part in parts]
    (tmp_path / "folder" / "SHA256SUMS").write_text("".join(sums))
    return tmp_path / "folder"


LISTS = "import os, sys\nprint(*sys.argv[1:2], *sys.argv[3:], *sorted(os.listdir()))\n"


def run_carried(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the session of a folder."""
    command = [ROOT / "benches" / "device_session.sh", "run", folder, folder / "out", "--minutes", "3"]
    environment = os.environ | {"PYTHON": sys.executable}
    return subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)


def test_carried_parts_are_joined(carried: Path) -> None:
    """Where all have arrived, and without those of other libraries."""
    whole = run_carried(carried)
    next(carried.glob("extras.001")).unlink()
    part = run_carried(carried)

    arguments = f"run {carried / 'out'} --minutes 3"
    assert (whole.returncode, whole.stdout) == (0, f"{arguments} benches more.txt\n"), whole.stderr
    assert (part.returncode, part.stdout) == (0, f"{arguments} benches\n"), part.stderr
    assert "extras has" in part.stderr


@pytest.mark.parametrize("is_lost", [True, False])
def test_lost_or_damaged_parts_are_named(carried: Path, is_lost: bool) -> None:
    """Nothing of them is unpacked."""
    part = carried / "base.001"
    if is_lost:
        part.unlink()
    else:
        part.write_bytes(part.read_bytes()[::-1])

    done = run_carried(carried)

    assert done.returncode == 1
    assert done.stdout.replace("base.001: FAILED\n", "") == ""
    assert ("base has" in done.stderr) if is_lost else ("base.001: FAILED" in done.stdout)


IMPORTS = """
import importlib, pathlib, sys
sys.path[:0] = sys.argv[1:]
folders = "benches/device", "tests/torch/cuda", "tests/torch/device"
names = [path.with_suffix("").as_posix() for folder in folders for path in sorted(pathlib.Path(folder).glob("*.py"))]
for name in sorted({name.replace("/", ".") for name in names} - {"benches.device.__main__"}):
    print(importlib.import_module(name).__file__)
"""


def test_what_is_carried_imports_nothing_of_the_repository(tmp_path: Path) -> None:
    """Stages and tests find all that they import in the folder, where there is no repository."""
    photographs, malformed, work = (tmp_path / name for name in ("photographs", "malformed", "work"))
    malformed.mkdir()
    write_photographs(photographs, per_class=1)
    write_work(work, photographs, malformed)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "penstock").symlink_to(Path(penstock.__file__).parent)
    installed = [path for path in sys.path if path.endswith("-packages")]

    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORTS, str(work), str(tmp_path / "site"), *installed],  # -S: no editable install
        cwd=work, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert f"{work}/tests/torch/cuda/test_on_cuda.py" in found
    assert [path for path in found if not path.startswith(f"{work}/")] == []


def test_the_tests_for_the_sanitizer_exist() -> None:
    """pytest finds them by the names that the stage passes; a wrong name would check nothing."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "cuda", "--collect-only", *SANITIZED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if "::" in line] == [*SANITIZED]


def test_installed_packages_are_left_alone(tmp_path: Path) -> None:
    """A wheel is unpacked where the package is missing, and penstock's always."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in ("numpy", "not_there_at_all", "penstock_data"):
        with zipfile.ZipFile(wheels / f"{name}-9.9-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}/__init__.py", "")
            archive.writestr(f"{name}-9.9.data/purelib/{name}_more/part.py", "")

    unpacked = unpack_missing(wheels, tmp_path / "site")

    assert unpacked == ["not-there-at-all 9.9", "penstock-data 9.9"]
    assert (tmp_path / "site" / "not_there_at_all_more" / "part.py").exists()
    assert not (tmp_path / "site" / "numpy").exists()


def test_pins_of_another_python_are_chosen() -> None:
    """Lines whose marker does not hold there are left out with their hashes."""
    sums = [f"    --hash=sha256:{letter * 4}\n" for letter in "abcd"]
    text = (
        f"# pins\na==1 \\\n{sums[0]}    # via b\nb==1 ; python_full_version < '3.12' \\\n{sums[1]}"
        f"b==2 ; python_full_version >= '3.12' \\\n{sums[2]}c==1 ; sys_platform == 'win32' \\\n{sums[3]}"
    )

    chosen = read_requirements(text, "3.12")

    assert chosen == f"a==1 \\\n{sums[0]}b==2 \\\n{sums[2]}"


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="no compiler for C++")
def test_a_rehearsal_runs_every_stage(tmp_path: Path) -> None:
    """With the kernels on the processor: every stage ends well or says why not, and all pixels are compared."""
    write_work(tmp_path / "work")
    command = [str(ROOT / "benches" / "device_session.sh"), "run", str(tmp_path / "work"), str(tmp_path / "out")]

    environment = os.environ | {"PYTHON": sys.executable}
    done = subprocess.run([*command, "--rehearse"], env=environment, capture_output=True, text=True, check=False)

    record = json.loads((tmp_path / "out" / "session.json").read_text())
    assert done.returncode == 0, done.stdout + done.stderr + str(record)
    assert record["rehearsed"]
    states = {name: stage["state"] for name, stage in record["stages"].items()}
    assert states == {plan.name: "skipped" if plan.name == "sanitizer" else "done" for plan in STAGES}
    pixels = record["stages"]["pixels"]["figures"]
    assert pixels["context_is_whole"]
    parts = [part for part in pixels.values() if isinstance(part, dict)]
    assert sum(part["different"] for part in parts) == 0
    assert all(
        part["images"] > 0 for name, part in pixels.items() if isinstance(part, dict) and name != "malformed files"
    )
    assert pixels["damaged batches"]["damaged"] > 0
    kernels = record["stages"]["kernels"]["figures"]["T1"]["kernels_us"]
    assert {"entropy", "rows"} <= kernels.keys()
    ours = record["stages"]["loaders"]["figures"]["T1, 1 core"]["penstock, decode on the device"]
    assert ours["rate"]["median"] > 0
    assert "hidden" in record["stages"]["training"]["figures"]["float32, prefetch"]
