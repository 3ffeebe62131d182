"""A server that speaks MongoDB's protocol, FerretDB over SQLite (``tests/servers/mongo``), for tests."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.servers.go_programs import build_go
from tests.servers.starting import hold_port, read_line


class MongoServer:
    """A server with files of its own in ``folder``; its port stays the same when it is killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._held_port = hold_port()
        self.host = f"127.0.0.1:{self._held_port.getsockname()[1]}"
        """Host and port, as they stand in a URL."""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        log = self._folder / "log"
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [build_server(), self.host, str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        try:
            read_line(self.process)
        except AssertionError as error:
            error.add_note(log.read_text(errors="replace")[-2000:])
            raise

    def kill(self) -> None:
        """End it as a power failure does: SIGKILL."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()
            self.process = None

    def close(self) -> None:
        """End it, and give up its port."""
        self.kill()
        self._held_port.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


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
            server.close()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server


@functools.cache
def build_server() -> str:
    """The path of the program; skips the test without Go, or if the modules cannot be fetched outside CI."""
    return build_go("mongo", is_required=True)
