"""Packing from tables, datasets and generators, killed in the middle and begun again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import penstock as ps
from tests.pack.sources.killed_pack import COUNT

ROOT: Final = Path(__file__).parent.parent.parent.parent


def run(kind: str, folder: Path, destination: Path, kill_at: int) -> subprocess.CompletedProcess[str]:
    """Pack in a process of its own, which kills itself after ``kill_at`` records."""
    program = [sys.executable, "-m", "tests.pack.sources.killed_pack"]
    command = [*program, kind, str(folder), str(destination), str(kill_at)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def read_files(pack: Path) -> dict[str, bytes]:
    """The files of a pack."""
    return {path.name: path.read_bytes() for path in pack.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    "kind", ["generator", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("table", "dataset"))]
)
def test_a_killed_pack_is_resumed_to_the_same_bytes(kind: str, tmp_path: Path) -> None:
    """After SIGKILL, twice, the same call goes on behind what was committed: the bytes of an undisturbed pack."""
    pack = tmp_path / "p.lmdb"

    killed = [run(kind, tmp_path, pack, kill_at).returncode for kill_at in (16, 40)]
    with pytest.raises(ps.IncompleteStoreError):
        ps.open(pack)
    resumed = run(kind, tmp_path, pack, COUNT + 1)
    whole = run(kind, tmp_path, tmp_path / "whole.lmdb", COUNT + 1)

    assert killed == [-signal.SIGKILL, -signal.SIGKILL]
    assert (resumed.returncode, whole.returncode) == (0, 0), resumed.stderr + whole.stderr
    assert 16 <= int(resumed.stdout) < COUNT
    assert int(whole.stdout) == 0
    assert read_files(pack) == read_files(tmp_path / "whole.lmdb")
    assert len(ps.open(pack)) == COUNT
