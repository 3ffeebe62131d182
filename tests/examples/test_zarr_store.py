"""The store in a distribution of its own, `examples/zarr_store`, passes the suite of penstock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "zarr_store"


@pytest.mark.slow
def test_a_zarr_store_of_another_distribution_passes_the_suite(tmp_path: Path) -> None:
    """It is found by its entry point, as if it was installed."""
    pytest.importorskip("zarr", reason="zarr is not installed: the suite of examples/zarr_store needs it")
    place = tmp_path / "zarr_patches-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: zarr-patches\nVersion: 1.0\n")
    entry = "zarr-patches = zarr_patches:ZarrPatchesStore"
    (place / "entry_points.txt").write_text(f"[penstock.stores]\n{entry}\n")
    paths = os.pathsep.join([str(tmp_path), str(EXAMPLE), str(EXAMPLE.parents[1])])

    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(EXAMPLE), "-c", os.devnull, str(EXAMPLE)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
