"""A server that speaks MongoDB's protocol, FerretDB over SQLite (``tests/servers/mongo``), for tests."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from tests.servers.go_programs import build_go

_START_TIMEOUT_S: Final = 60.0


class MongoServer:
    """A server with files of its own in ``folder``; its port stays the same when it is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        """Host and port, as they stand in a URL."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        import pymongo

        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [build_server(), self.host, str(self._folder)], stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._accepts() and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        client: Any = pymongo.MongoClient(self.host, serverSelectionTimeoutMS=100)
        with client:
            while True:
                try:
                    client.admin.command("ping")
                except pymongo.errors.PyMongoError:
                    log_text = (self._folder / "log").read_text(errors="replace")[-2000:]
                    assert self.process.poll() is None, f"the server ended: {log_text}"
                    assert time.monotonic() < deadline, f"the server does not answer: {log_text}"
                else:
                    return

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """End it as a power failure does: SIGKILL."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()
            self.process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


@functools.cache
def get_server() -> MongoServer:
    """The server of this process, which lives until the process ends; skips the test where it cannot be built."""
    pytest.importorskip("pymongo")
    build_server()
    folder = Path(tempfile.mkdtemp(prefix="penstock-mongo-"))
    server = MongoServer(folder)
    server.start()
    owner = os.getpid()

    def end() -> None:
        if os.getpid() == owner:
            server.kill()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server


@functools.cache
def build_server() -> str:
    """The path of the program; skips the test without Go, or if the modules cannot be fetched outside CI."""
    return build_go("mongo", is_required=True)
