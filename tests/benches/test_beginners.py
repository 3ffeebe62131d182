"""``benches/beginners.py`` with a fake doctor: how runs are scored, kept and gone on with."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHES = Path(__file__).resolve().parents[2] / "benches"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, which imports its harness as a script does."""
    monkeypatch.syspath_prepend(BENCHES)
    yield importlib.import_module("beginners")
    for name in ("beginners", "harness"):
        sys.modules.pop(name, None)


def make_run(said: float | None = None, got: float | None = None, stage: str = "read") -> dict[str, Any]:
    """What is kept of a run."""
    return {
        "stage": stage, "greatest": "decode", "change": "num_workers=2", "said": said, "written": got is not None,
        "got": got,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "got", "right"),
    [
        (1.5, 1.45, True),
        (1.5, 1.1, False),  # less than was said
        (1.1, 1.5, False),  # more than was said
        (1.06, 1.04, False),  # too little to be worth a change
        (1.5, None, False),  # not written into the file
        (None, None, False),
    ],
)
def test_a_fix_is_right_if_it_brings_what_was_said(
    bench: Any, said: float | None, got: float | None, right: bool
) -> None:
    """Within 20 %, and 5 % or more."""
    assert bench.is_right(make_run(said, got)) is right


def test_each_script_has_a_stage_and_a_file(bench: Any) -> None:
    """The beginners' and the strangers'."""
    scripts = bench.list_scripts()

    assert {name.partition("/")[0] for name in scripts} == {"beginners", "strangers"}
    files = [f"{path.parent.name}/{path.stem}" for path in (BENCHES / "planted").glob("*s/[0-9]*.py")]
    assert sorted(scripts) == sorted(files)


def test_what_was_found_is_gone_on_with(bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No script begins when the time is over; the next call runs what is missing, and a run has one line."""
    results, now, asked = tmp_path / "results.json", [0.0], list[str]()
    wanted = [(name, 1) for name in ("beginners/03_npy_rows", "strangers/03_brain_slices", "strangers/04_spoken_words")]

    def find(name: str) -> dict[str, Any]:
        asked.append(name)
        now[0] += 45.0
        return make_run(2.0, 1.9)

    first = bench.run_missing(wanted, results, 1.0, find, lambda: now[0])
    assert len(first) == len(json.loads(results.read_text())) == 2
    whole = bench.run_missing(wanted, results, 1.0, find, lambda: now[0])

    assert asked == [name for name, _ in wanted]
    assert list(whole) == [f"{name}#1" for name in asked]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| beginners/03_npy_rows#1 | read | read | decode | num_workers=2 | 2.00 | 1.90 | yes |"
    assert len(lines) == 3


def test_the_summary_counts_each_kind_apart(bench: Any) -> None:
    """Stages by the author's word and by absence; fixes that were followed, right, and harmful."""
    runs = {"a/x#1": make_run(1.5, 1.5), "a/x#2": make_run(1.5, 0.9), "a/y#1": make_run(stage="decode")}

    text = bench.summarize(runs, {"a/x": "read", "a/y": "decode"})

    assert text == (
        "3 runs. Stage by the author's word: 3; that whose absence brings most: 1. A fix followed to the letter: 2, "
        "right: 1, slower than before: 1."
    )


FAKE = """
import json, sys
from pathlib import Path

report, script = Path(sys.argv[sys.argv.index("--json") + 1]), Path(sys.argv[-2])
script.with_name(script.name + ".orig").write_text(script.read_text())
script.write_text(script.read_text().replace("100", "200"))
fix = {"change": "twice as fast", "measured": 2.1, "written": True}
absences = {"read": {"part": 0.2}, "decode": {"part": 0.6}}
report.write_text(json.dumps({"verdict": {"stage": "workers"}, "absences": absences, "fix": fix}))
"""


def test_a_script_is_mended_and_timed(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a copy, in turns with what it was: the speeds are those that the scripts print last."""
    package = tmp_path / "fake" / "penstock"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(FAKE)
    monkeypatch.chdir(package.parent)  # `python -m` looks there first
    script = tmp_path / "train.py"
    script.write_text("print('1 samples/s')\nprint('speed:', 100.0, 'samples/s')\n")

    found = bench.examine(script, tmp_path, 1, 2)

    assert found == {
        "stage": "workers", "greatest": "decode", "change": "twice as fast", "said": 2.1, "written": True, "got": 2.0,
    }  # fmt: skip
    assert bench.is_right(found)
    assert "100.0" in script.read_text()
