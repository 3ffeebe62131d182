"""A web server with ranges for tests: files of a folder, with faults on request. ``http://127.0.0.1:port/name``.

Also a server of S3's protocol that does not ask for keys: the folders in its folder are buckets, and are listed.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["WebServer", "running", "serving"]


class WebServer(ThreadingHTTPServer):
    """Serves a folder; its attributes say what goes wrong.

    Attributes
    ----------
    faults : list of str
        The faults of the next GET requests, one each: a status (``"503"``), ``"reset"``, ``"short"``, ``"wrong"``
        (one byte), ``"garbage"`` (all bytes), ``"html"``.
    damaged : set of (str, str)
        Path and range of GET requests whose next answer is garbage.
    folders : int
        The status of the answer for a folder; 200: a page that lists it.
    has_versions, has_etags : bool
        Whether answers state when a file was changed, and whether not only to the second.
    held : int
        Answers wait until so many requests have come, in vain if they come one after the other: then it is -1.
    latency : float
        Seconds before each answer.
    asked : list of (str, str, str)
        Method, path and range of each request.
    times : list of (float, float)
        When each request came, and when it was answered.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.faults: list[str] = []
        self.damaged: set[tuple[str, str]] = set()
        self.latency = 0.0
        self.held = 0
        self._came = threading.Condition()
        self.folders = 404
        self.has_versions = self.has_etags = True
        self.asked: list[tuple[str, str, str]] = []
        self.times: list[tuple[float, float]] = []
        self._sent_nbytes = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients of S3 find it; keys are not compared."""
        keys = {"AWS_ACCESS_KEY_ID": "a-key", "AWS_SECRET_ACCESS_KEY": "a-secret"}
        return {"AWS_ENDPOINT_URL": self.url, "AWS_REGION": "us-east-1", **keys}

    @property
    def sent_nbytes(self) -> int:
        """Number of bytes of files that were sent so far."""
        return self._sent_nbytes

    @property
    def ranges(self) -> int:
        """Number of GET requests so far."""
        return sum(method == "GET" for method, _, _ in self.asked)

    def count_rounds(self) -> int:
        """The most requests that came one after the other: each when the one before it was answered."""
        rounds, last = 0, 0.0
        for begin, end in sorted(self.times, key=lambda each: each[1]):
            if begin >= last:
                rounds, last = rounds + 1, end
        return rounds

    def wait_for_others(self) -> None:
        """Hold an answer until so many requests have come as ``held`` says."""
        with self._came:
            self._came.notify_all()
            if not self._came.wait_for(lambda: len(self.asked) >= self.held, 10 if self.held > 0 else 0):
                self.held = -1

    def count(self, nbytes: int) -> None:
        """Note bytes that are sent."""
        with self._lock:
            self._sent_nbytes += nbytes

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is no error here."""


S = TypeVar("S", bound=WebServer)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebServer

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def _answer(self, *, with_body: bool) -> None:
        asked = self.headers.get("Range", "")
        self.server.asked.append((self.command, self.path, asked))
        begin = time.monotonic()
        time.sleep(self.server.latency)
        self.server.wait_for_others()
        self.server.times.append((begin, time.monotonic()))
        fault = self.server.faults.pop(0) if with_body and self.server.faults else ""
        if with_body and (self.path, asked) in self.server.damaged:
            self.server.damaged.remove((self.path, asked))
            fault = "garbage"
        parts = urlsplit(self.path)
        path = self.server.root / unquote(parts.path).lstrip("/")
        if fault == "reset":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif fault == "html":
            self._send(200, b"<html>Please sign in to the network.</html>", {"Content-Type": "text/html"})
        elif fault.isdigit():
            self._send(int(fault), b"no", {})
        elif "list-type=2" in parts.query and path.is_dir():
            self._send_list(path, parse_qs(parts.query).get("prefix", [""])[0])
        elif path.is_dir():
            self._send(self.server.folders, b"<html>photos</html>", {"Content-Type": "text/html"})
        elif not path.is_file():
            self._send(404, b"no such file", {})
        else:
            self._send_file(path, asked, fault)

    def _send_list(self, bucket: Path, prefix: str) -> None:
        """All objects of a bucket whose keys have a prefix."""
        names = sorted(path.relative_to(bucket).as_posix() for path in bucket.rglob("*") if path.is_file())
        entries = ""
        for name in names:
            if name.startswith(prefix):
                about = (bucket / name).stat()
                changed = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(about.st_mtime))
                entries += (
                    f"<Contents><Key>{escape(name)}</Key><LastModified>{changed}</LastModified>"
                    f'<ETag>"{about.st_mtime_ns:x}-{about.st_size:x}"</ETag><Size>{about.st_size}</Size></Contents>'
                )
        answer = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        self._send(200, answer.encode(), {"Content-Type": "application/xml"})

    def _send_file(self, path: Path, asked: str, fault: str) -> None:
        content, about = path.read_bytes(), path.stat()
        headers = {"Accept-Ranges": "bytes"}
        if self.server.has_versions and self.server.has_etags:
            headers["ETag"] = f'"{about.st_mtime_ns:x}-{about.st_size:x}"'
        if self.server.has_versions:
            headers["Last-Modified"] = self.date_time_string(about.st_mtime)
        found = re.fullmatch(r"bytes=(\d*)-(\d+)", asked)
        if found is None:
            self._send(200, content, headers, fault)
            return
        begin, end = (int(found[1]), int(found[2]) + 1) if found[1] else (len(content) - int(found[2]), len(content))
        begin, end = max(begin, 0), min(end, len(content))
        if begin >= end:
            self._send(416, b"", headers)
            return
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        self._send(206, content[begin:end], headers, fault)

    def _send(self, status: int, content: bytes, headers: dict[str, str], fault: str = "") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.server.count(len(content))
        if fault == "wrong":
            content = bytes([content[0] ^ 1]) + content[1:]
        if fault == "garbage":
            content = content.translate(bytes(range(255, -1, -1)))
        if fault == "short":
            content, self.close_connection = content[: len(content) // 2], True
        self.wfile.write(content)


def serving(root: Path) -> AbstractContextManager[WebServer]:
    """A server of the files below ``root``, in threads of this process."""
    return running(WebServer(root))


@contextmanager
def running(server: S) -> Iterator[S]:
    """Run a server in threads of this process."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
