"""A Ray of the tests' own: small, without a dashboard, ended with the module that uses it."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

__all__ = ["local_ray", "send_by_value"]

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else each start warns of a change to come
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")


@contextlib.contextmanager
def local_ray(num_cpus: int = 8, object_store_memory: int = 100_000_000) -> Iterator[Any]:
    """Ray on this machine; a test is skipped where it is not installed. ``num_cpus`` reserves, and uses, nothing."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'penstock-data[ray]'")
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # sockets have short paths
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray imports
        ray.init(
            address="local", num_cpus=num_cpus, object_store_memory=object_store_memory, include_dashboard=False,
            log_to_driver=False, _temp_dir=folder,
        )  # fmt: skip
    try:
        yield ray
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def send_by_value(module: str) -> None:
    """Have Ray send the classes of a test module by value: actors cannot import it."""
    ray: Any = importlib.import_module("ray")
    ray.cloudpickle.register_pickle_by_value(sys.modules[module])
