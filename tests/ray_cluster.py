"""A Ray of the tests' own: small, without a dashboard, one for all tests of a process."""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import sys
import tempfile
import warnings
from typing import Any

import pytest

__all__ = ["end_ray", "send_by_value", "use_local_ray"]

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else each start warns of a change to come
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")


_folder = ""
"""Of the Ray that :func:`use_local_ray` has started; empty if there is none."""


def use_local_ray(num_cpus: int = 8, object_store_memory: int = 100_000_000) -> Any:
    """Ray on this machine, started by the first test of a process that needs it; the test is skipped without Ray.

    ``num_cpus`` reserves, and uses, nothing. A test that needs another Ray calls :func:`end_ray` before it begins one.
    """
    global _folder  # noqa: PLW0603  # one for each process
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'penstock-data[ray]'")
    if _folder and ray.is_initialized():
        return ray
    end_ray()
    _folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # sockets have short paths
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray imports
        ray.init(
            address="local", num_cpus=num_cpus, object_store_memory=object_store_memory, include_dashboard=False,
            log_to_driver=False, _temp_dir=_folder,
        )  # fmt: skip
    return ray


@atexit.register
def end_ray() -> None:
    """End the Ray that this process uses. Idempotent."""
    global _folder  # noqa: PLW0603  # as above
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()
    if _folder:
        shutil.rmtree(_folder, ignore_errors=True)
    _folder = ""


def send_by_value(module: str) -> None:
    """Have Ray send the classes of a test module by value: actors cannot import it."""
    ray: Any = importlib.import_module("ray")
    ray.cloudpickle.register_pickle_by_value(sys.modules[module])
