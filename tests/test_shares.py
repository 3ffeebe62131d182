"""The share of a machine that a process may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.system.shares import MemoryBudget, find_cores
from penstock.system.system_files import SystemFiles


def test_limits_follow_from_memory_and_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of 200 MB and batches of 10 MB in half of 2 GB; two ranks share eight cores."""
    files = {"proc/meminfo": "MemTotal: 2000000 kB", "proc/7/smaps_rollup": "head\nPss: 200000 kB"}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    monkeypatch.setattr("penstock.system.control_group.core_numbers", lambda: list(range(8)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert MemoryBudget(0.5, SystemFiles(tmp_path)).count_fitting(2, 2, [7], 10e6) == (4, 61)
    assert find_cores(SystemFiles(tmp_path)) == 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "none")
    assert find_cores(SystemFiles(tmp_path)) == 8
