"""How every word of the Makefile runs pytest (scripts/run_tests.py): sessions, what failed once more, the last line."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

FLAKY = """
from pathlib import Path

def test_{0}():
    seen = Path(__file__ + ".seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


@pytest.fixture(name="runner")
def load_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/run_tests.py as a module that runs the tests of an empty project."""
    spec = importlib.util.spec_from_file_location("penstock_run_tests", ROOT / "scripts" / "run_tests.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # its dataclasses look there
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    options = "--disable-plugin-autoload -p xdist --import-mode=importlib"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {options}\n")
    return module


def write_tests(folder: Path, *, passing: int = 0, flaky: int = 0, failing: int = 0) -> list[str]:
    """A file of each test; the arguments of one session."""
    for number in range(passing):
        (folder / f"test_right_{number}.py").write_text(f"def test_{number}(): pass\n")
    for number in range(flaky):
        (folder / f"test_flaky_{number}.py").write_text(FLAKY.format(number))
    for number in range(failing):
        (folder / f"test_wrong_{number}.py").write_text(f"def test_{number}(): assert False\n")
    return ["-n", "0"]


@pytest.mark.parametrize(
    ("tests", "status", "flaky", "last"),
    [
        ({"passing": 2}, 0, 0, "2 passed, 0 failed, 0 skipped"),
        ({"passing": 1, "flaky": 2}, 0, 2, "3 passed, 0 failed, 0 skipped"),
        ({"flaky": 1, "failing": 1}, 1, 1, "1 passed, 1 failed, 0 skipped"),
        ({"passing": 1, "flaky": 6}, 1, 0, "1 passed, 6 failed, 0 skipped"),
        ({}, 5, 0, "0 passed, 0 failed, 0 skipped"),
    ],
    ids=["pass", "flaky", "fail", "six flaky", "none"],
)
def test_what_fails_is_run_once_more_alone(
    runner: ModuleType,
    tmp_path: Path,
    tests: dict[str, int],
    status: int,
    flaky: int,
    last: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What passes then is named and counted, up to five; a test that fails twice fails the run."""
    arguments = write_tests(tmp_path, **tests)

    found = runner.run_sessions(sys.executable, [arguments])

    lines = capfd.readouterr().out.splitlines()
    assert found == status
    assert lines[-2:] == [f"flaky: {flaky} of at most 5", last]
    assert sum(line.startswith("FLAKY: test_flaky_") for line in lines) == flaky


def test_the_sum_is_that_of_all_sessions(runner: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What failed in an earlier session is run again after the last, with the failures of all."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_tests(tmp_path / name, passing=1, flaky=1)

    status = runner.run_sessions(sys.executable, [["-n", "0", "one"], ["-n", "0", "two"]])

    out = capfd.readouterr().out
    assert status == 0
    assert out.count("FLAKY: ") == 2
    assert out.splitlines()[-1] == "4 passed, 0 failed, 0 skipped"


def test_a_run_that_ends_early_is_not_tried_again(
    runner: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file that cannot be imported, or wrong arguments, end the run with pytest's status."""
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")

    status = runner.run_sessions(sys.executable, [["-n", "0"], ["-n", "0"]])

    assert status == 2
    assert "pytest ended with status 2" in capfd.readouterr().err


def test_each_test_is_in_one_session(runner: ModuleType) -> None:
    """`make test` divides tests/, README.md and docs/ among its sessions; nothing is left out or run twice."""
    sessions = runner.divide_tests()

    paths = [path for session in sessions for path in session]
    kept = subprocess.run(["git", "ls-files", "tests"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [Path(name) for name in kept.splitlines() if Path(name).name.startswith("test_") and name.endswith(".py")]
    elsewhere = {Path("tests", name) for name in runner.ELSEWHERE}
    expected = [file for file in files if not elsewhere & set(file.parents)]
    assert len(paths) == len(set(paths))
    assert [file for file in expected if not {str(file), *map(str, file.parents)} & set(paths)] == []
    assert paths[-2:] == ["README.md", "docs"]
