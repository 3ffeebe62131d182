"""The fuzz targets of the native core, for ten seconds each: ``make fuzz`` is the longer run."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TARGETS = [target["name"] for target in tomllib.loads((ROOT / "native/fuzz/Cargo.toml").read_text())["bin"]]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("target", TARGETS)
def test_arbitrary_bytes_break_no_rule(target: str) -> None:
    """Nothing panics, reads outside of its memory, or contradicts the property of its target."""
    if shutil.which("cargo") is None or subprocess.run(["cargo", "+nightly", "--version"], check=False).returncode:
        pytest.skip("Rust's nightly toolchain is not installed: rustup toolchain install nightly --profile minimal")
    if not (ROOT / ".venv/bin/cargo-fuzz").exists():
        pytest.skip("cargo-fuzz is not installed in .venv: `make fuzz` installs it")

    done = subprocess.run([ROOT / "scripts/fuzz.sh", "10", target], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert "stat::number_of_executed_units" in done.stderr
