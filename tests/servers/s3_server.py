"""Starts the server of S3's protocol in ``tests/servers/s3``, which is built when it is first needed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.servers.starting import read_line

__all__ = ["S3Server", "build", "serving"]

CRATE: Final = Path(__file__).parent / "s3"
KEYS: Final = ("a-key", "a-secret")


class S3Server:
    """A running server of the folders below ``root``, which are its buckets."""

    def __init__(self, program: Path, root: Path) -> None:
        self._program, self.root = program, root
        self.start()

    def start(self) -> None:
        """Start it, at another port than before."""
        self._process = subprocess.Popen([self._program, self.root, *KEYS], stdout=subprocess.PIPE)
        self.url = f"http://127.0.0.1:{read_line(self._process).split()[-1]}"

    def kill(self) -> None:
        """End it at once."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    @property
    def options(self) -> dict[str, object]:
        """The ``storage_options`` of its clients."""
        names = ("access_key_id", "secret_access_key")
        return {"endpoint": self.url, "region": "us-east-1", **dict(zip(names, KEYS, strict=True))}

    @property
    def processor_s(self) -> float:
        """Seconds of processors that it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def set_faults(self, **faults: object) -> dict[str, Any]:
        """The network from now on: ``latency_ms``, ``bytes_per_second``, ``seed``, and the part of each fault."""
        return self._ask("faults", json.dumps(faults).encode())

    def count(self) -> dict[str, Any]:
        """Requests, bytes and faults since the last :meth:`set_faults`."""
        return self._ask("counts", None)

    def _ask(self, what: str, content: bytes | None) -> dict[str, Any]:
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/-/{what}", content), timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


def build() -> Path | None:
    """The program; None where there is no cargo, or its crates cannot be fetched."""
    if shutil.which("cargo") is None:
        return None
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", str(CRATE / "Cargo.toml")]
    done = subprocess.run(command, check=False)
    return None if done.returncode else CRATE / "target" / "release" / "s3-server"


@contextmanager
def serving(program: Path, root: Path) -> Iterator[S3Server]:
    """A server of the buckets below ``root``."""
    server = S3Server(program, root)
    try:
        yield server
    finally:
        server.kill()
