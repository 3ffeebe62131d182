"""One Ray for the tests of this folder, and datasets that actors get by value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.ray_cluster import local_ray


@pytest.fixture(scope="package")
def ray() -> Iterator[Any]:
    """Ray with 8 CPUs to reserve."""
    with local_ray() as started:
        yield started
