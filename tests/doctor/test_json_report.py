"""The report as JSON, against its documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.doctor.fixes.candidates import FixCandidate
from penstock.doctor.fixes.patch import Fix, MeasuredChange
from penstock.doctor.judge.diagnosis import VERDICTS
from penstock.doctor.reports.json_report import compare, read_json, to_json, write_json
from penstock.doctor.trials.script_runs import ScriptChange
from penstock.errors import ArgumentError
from tests.doctor.diagnoses import HOSTILE, make_diagnosis, make_healthy

PAGE = Path(__file__).resolve().parents[2] / "docs" / "doctor.md"
TYPES: dict[str, tuple[type, ...]] = {
    "number": (int, float), "int": (int,), "text": (str,), "bool": (bool,), "null": (type(None),), "list": (list,),
    "object": (dict,),
}  # fmt: skip
OPEN = {"machine", "device", "remote", "ranks", "others"}
"""Fields whose content is documented where it is made."""


def documented() -> dict[str, tuple[type, ...]]:
    """Paths and types of the table of fields in docs/doctor.md."""
    rows = re.findall(r"^\| `([\w.\[\]*]+)` \| ([a-z, ]+) \|", PAGE.read_text(), re.MULTILINE)
    return {path: tuple(kind for name in types.split(", ") for kind in TYPES[name]) for path, types in rows}


def paths(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """All values with their paths: ``advice[].change``; names of stages are ``*``."""
    found = [(path, value)] if path else []
    if path in OPEN:
        return found
    if isinstance(value, dict):
        for name, each in value.items():
            step = "*" if path in {"stages", "absences"} else name
            found += paths(each, f"{path}.{step}" if path else step)
    elif isinstance(value, list):
        for each in value:
            found += paths(each, f"{path}[]")
    return found


@pytest.mark.parametrize("diagnosis", [make_diagnosis(), make_healthy()], ids=["waits", "healthy"])
def test_fields_are_as_documented(diagnosis: Any) -> None:
    """Each field of a report is in the table of docs/doctor.md, with its type; each row of it occurs."""
    schema = documented()
    fix = Fix(
        [MeasuredChange(FixCandidate("num_workers=4", ScriptChange()), [1.5, 1.6])], ["penstock's loader: unknown"]
    )
    report = json.loads(json.dumps(to_json(diagnosis, fix.to_json() if diagnosis.advice else None), allow_nan=False))

    found = paths(report)

    assert len(schema) > 40
    assert sorted({path for path, _ in found} - set(schema)) == []
    for path, value in found:
        assert isinstance(value, schema[path]), (path, value)
        assert bool in schema[path] or not isinstance(value, bool), path
    if diagnosis.advice:
        assert sorted(set(schema) - {path for path, _ in found}) == []


def test_the_fields_that_programs_read() -> None:
    """`verdict`, `waiting`, `stages`, `advice` and `keys` say what the diagnosis says."""
    report = to_json(make_diagnosis())

    assert report["verdict"]["stage"] == "decode"
    assert report["verdict"]["text"].startswith("Decoding limits")
    assert report["waiting"] == 0.58
    assert list(report["stages"])[:2] == ["read", "decode"]
    assert report["stages"]["decode"]["us_per_sample"] == 3510.0
    assert [(each["change"], each["measured"]) for each in report["advice"]] == [
        ("num_workers=8", 1.98), ("decode JPEG at half the size", 1.7), ("pack the dataset", None),
    ]  # fmt: skip
    assert report["absences"]["decode"] == {"gain": 2.5, "part": 0.81, "measured": 5.2, "spread": [4.9, 5.6], "runs": 3}
    assert report["absences"]["read"]["measured"] is None
    assert [each["spread"] for each in report["advice"]] == [[1.91, 2.04], [1.52, 1.77], None]
    first = {"index": 417, "key": "photos/train/n0144/0017.jpg", "ms": 96.4, "worker": 0, "rank": 0}
    assert report["keys"][0] == first
    assert report["steps"]["count"] == 60 - 4 - 4
    assert report["steps"]["step_ms"] == {"mean": 4.0, "p50": 4.0, "p99": 4.0}


def test_verdicts_are_those_of_the_documentation() -> None:
    """The page lists each stage of a verdict."""
    listed = re.findall(r"^\| `(\w+)` \| [A-Z]", PAGE.read_text(), re.MULTILINE)

    assert tuple(listed) == VERDICTS


def test_numbers_of_numpy_and_infinity_become_plain() -> None:
    """JSON has neither NaN nor NumPy's numbers."""
    diagnosis = make_diagnosis(
        ranks=[{"rank": np.int64(1), "waiting": float("nan"), "at": np.array([1.5, np.inf]), "path": Path("a")}]
    )
    diagnosis.recording.machine = {"set": {1}, "flag": np.bool_(True), "none": None}

    report = json.loads(json.dumps(to_json(diagnosis), allow_nan=False))

    assert report["ranks"] == [{"rank": 1, "waiting": None, "at": [1.5, None], "path": "a"}]
    assert report["machine"] == {"set": [1], "flag": True, "none": None}


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Also with keys that are no UTF-8; nothing but the file is left in the folder."""
    diagnosis = make_diagnosis(keys=HOSTILE)
    path = tmp_path / "report.json"
    path.write_text("older")

    write_json(diagnosis, path)

    assert read_json(path) == to_json(diagnosis)
    assert [each["key"] for each in read_json(path)["keys"]] == HOSTILE
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report is there whole, or the one before."""
    path = tmp_path / "report.json"
    path.write_text("older")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))

    with pytest.raises(OSError, match="disk full"):
        write_json(make_diagnosis(), path)

    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[1]", "its format must be 'penstock-doctor'"),
        ('{"format": "other"}', "its format must be 'penstock-doctor'"),
        ('{"format": "penstock-doctor", "version": 99}', "has version 99"),
        ('{"format": "penstock-doctor", "version": 2, "verdict": {"stage": "luck"}}', "verdict.stage must be one of"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error says what is wrong with the file."""
    path = tmp_path / "report.json"
    path.write_text(text)

    with pytest.raises(ArgumentError, match=re.escape(message)):
        read_json(path)


def test_two_results_are_compared() -> None:
    """Fields that differ are listed with both values; numbers that nearly agree, and times but the mean, are not."""
    fast = {
        "samples_per_s": {"delivered": 400.0, "trainer": 800.0}, "verdict": {"stage": "decode", "text": "a"},
        "stages": {"decode": {"us_per_sample": 600.0, "p99_us": 1.0}},
        "settings": {"num_workers": 3, "pin_memory": True},
        "machine": {"processor": {"model": "Fast"}, "disks": [{"kind": "disk"}]},
    }  # fmt: skip
    slow = {
        "samples_per_s": {"delivered": 100.0, "trainer": 790.0}, "verdict": {"stage": "decode", "text": "b"},
        "stages": {"decode": {"us_per_sample": 2400.0, "p99_us": 9.0}},
        "settings": {"num_workers": 3, "pin_memory": False},
        "machine": {"processor": {"model": "Slow"}, "disks": [{"kind": "network"}]},
    }  # fmt: skip

    rows = [line.split() for line in compare(fast, slow)[1:]]

    assert rows == [
        ["samples_per_s.delivered", "400", "100", "4.00"],
        ["stages.decode.us_per_sample", "600", "2400", "4.00"],
        ["settings.pin_memory", "True", "False"],
        ["machine.processor.model", "Fast", "Slow"],
        ["machine.disks[0].kind", "disk", "network"],
    ]
    assert compare(fast, fast) == ["Nothing that was measured differs by more than a tenth."]


def test_results_without_most_fields_are_compared() -> None:
    """What only one has is listed."""
    assert compare({}, {"waiting": 0.5})[1].split() == ["waiting", "None", "0.5"]
