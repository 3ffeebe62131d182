"""Known mistakes in training scripts are found at their lines, and nothing else is."""

from __future__ import annotations

import re
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.doctor import watch
from penstock.doctor.checks.checking import SCRIPT_RULES
from penstock.doctor.checks.findings import Finding
from tests.doctor.stranger_scripts import COMMON, LIBRARY, SCRIPTS

_TRIAL_S = 1.9
"""Enough to measure copies, and too little to try changes."""
MACHINE = {"loader-setting", "thread-crowd"}
"""Rules whose findings depend on the machine."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the user's with ``common.py``, and an installed package ``library``."""
    (tmp_path / "common.py").write_text(COMMON)
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.setattr(sys, "argv", ["train.py"])
    yield tmp_path
    for name in ("common", "library"):
        sys.modules.pop(name, None)


def find_in(folder: Path, script: str, budget_s: float = 0) -> list[Finding]:
    """Run a script, and return what was found."""
    path = folder / "train.py"
    path.write_text(script)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch: without a device nothing is page-locked
        with watch(steps=6, budget_s=budget_s) as report:
            runpy.run_path(str(path), run_name="__main__")
    assert report.diagnosis is not None
    assert [note for note in report.diagnosis.notes if "could not be checked" in note] == []
    return [each for each in report.diagnosis.findings if each.rule not in MACHINE]


def lines_of(finding: Finding) -> set[tuple[str, int]]:
    """Rule and line of all lines that a finding names."""
    numbers = re.search(r"line ([\d, ]+)", finding.where)
    assert numbers is not None, finding.where
    assert finding.file.endswith(".py")
    return {(finding.rule, int(number)) for number in numbers[1].split(", ")}


def marked(script: str) -> set[tuple[str, int]]:
    """Rule and line of the comments ``# trap: RULE``."""
    lines = enumerate(script.splitlines(), 1)
    return {(rule, number) for number, line in lines for rule in re.findall(r"# trap: ([\w-]+)", line)}


@pytest.mark.parametrize("name", SCRIPTS)
def test_marked_lines_are_found_and_no_others(folder: Path, name: str) -> None:
    """Each marked line has a finding of its rule; no other line has one."""
    found = find_in(folder, SCRIPTS[name])

    assert {line for finding in found for line in lines_of(finding)} == marked(SCRIPTS[name])


ON_A_DEVICE = """
import torch
from common import Photos
from library import Wrapped

loader = torch.utils.data.DataLoader(Photos(), batch_size=32)
for images, labels in loader:
    images.float().to("meta")  # trap: cast-before-copy
    images.to("meta", non_blocking=True)  # trap: blocking-copy
    images.to("meta")
    images.float().to("cpu")
for images, labels in Wrapped(loader, "meta"):
    images.to(torch.float32).to("meta", non_blocking=True)
"""


def test_with_a_device_tensors_say_where_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with a device, only what is copied to it counts, and costs: findings are warnings."""
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)

    found = find_in(folder, ON_A_DEVICE)

    assert {line for finding in found for line in lines_of(finding)} == marked(ON_A_DEVICE)
    assert {finding.severity for finding in found} == {"warning"}


def read_page(rule: str) -> list[str]:
    """The examples of a page: wrong code, right code."""
    page = Path(__file__).resolve().parents[2] / "penstock" / "explain" / "pages" / f"{rule}.md"
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("rule", SCRIPT_RULES)
def test_the_wrong_code_of_a_page_is_found(folder: Path, rule: str) -> None:
    """The doctor finds in the first example of a page what the page is about, and nothing else."""
    wrong, _ = read_page(rule)

    found = find_in(folder, wrong, _TRIAL_S if rule == "tensor-copies" else 0)

    assert {finding.rule for finding in found} == {rule}


@pytest.mark.parametrize("rule", SCRIPT_RULES)
def test_in_the_right_code_of_a_page_nothing_is_found(folder: Path, rule: str) -> None:
    """The second example is without any mistake."""
    _, right = read_page(rule)

    assert find_in(folder, right, _TRIAL_S if rule == "tensor-copies" else 0) == []
