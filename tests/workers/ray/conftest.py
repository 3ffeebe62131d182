"""One Ray for the tests of this folder, and datasets that actors get by value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ray_cluster import use_local_ray


@pytest.fixture
def ray() -> Any:
    """Ray with 8 CPUs to reserve."""
    return use_local_ray()
