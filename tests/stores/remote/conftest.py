"""Threads of requests end with the tests of a module: workers are not forked beside threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.stores.remote import request_queue
from tests.servers.s3_server import S3Server, build, serving


@pytest.fixture(autouse=True, scope="module")
def no_thread_stays() -> Iterator[None]:
    """Threads that are not needed end soon, and are waited for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_queue, "_IDLE_SECONDS", 0.2)
        yield
        limit = time.monotonic() + 60
        while any(t.name == "penstock-fetch" for t in threading.enumerate()):
            assert time.monotonic() < limit, "threads that fetch do not end"
            time.sleep(0.02)


@pytest.fixture
def empty_s3(tmp_path: Path) -> Iterator[S3Server]:
    """A server of S3's protocol with one empty bucket, ``bucket``."""
    program = build()
    if program is None:
        pytest.skip("the server cannot be built here")
    (tmp_path / "buckets" / "bucket").mkdir(parents=True)
    with serving(program, tmp_path / "buckets") as server:
        yield server
