"""``loader.serve_metrics(port)``: a loader's counters by HTTP, for Prometheus.

::

    loader.serve_metrics(9400, name="train") ──> _Server of this port of this process <── valid.serve_metrics(9400, ...)
                                                     │ one thread, which sleeps between requests
    GET /metrics ──> counters.stats() of each loader, as loader.stats() reads them

A server ends with the last of its loaders. It holds none of them, and a forked child does not serve.
"""

from __future__ import annotations

import contextlib
import http.server
import logging
import os
import socket
import socketserver
import sys
import threading
import weakref
from typing import Final, Self

from penstock import system
from penstock.errors import ArgumentError
from penstock.loader.counters import LoaderCounters
from penstock.loader.metrics.exposition import format_metrics
from penstock.ranks import World, find_world

__all__ = ["ServedMetrics"]

_OPEN_METRICS: Final = "application/openmetrics-text"
_servers: Final[dict[tuple[str, int], _Server]] = {}
_logger = logging.getLogger(__name__)


class ServedMetrics:
    """What ``loader.serve_metrics()`` returns; a context manager.

    Attributes
    ----------
    url : str
        Where the metrics are.
    port : int
        Of the server, for other loaders of this process.
    """

    def __init__(self, counters: LoaderCounters, port: int, host: str, name: str) -> None:
        world = World()
        with contextlib.suppress(ArgumentError):  # variables that contradict one another: the sampler says so
            world = find_world()
        # A port that is served already has the rank in it: `served.port` of another loader.
        server = _servers.get((host, port)) or _find_server(host, port + world.local_rank if port else 0)
        known = server.loaders.get(name)
        if known is not None and known[1]() not in (None, counters):
            raise ArgumentError(
                f"name={name!r} is another loader's at {server.url}; give each loader a name of its own"
            )
        server.loaders[name] = {"loader": name, "rank": str(world.rank)}, weakref.ref(counters)
        server.start()
        self.url, self.port = server.url, server.port
        self._end = weakref.finalize(counters, server.remove, name)
        self._end.atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Serve this loader no longer. Idempotent."""
        self._end()


def _find_server(host: str, port: int) -> _Server:
    known = _servers.get((host, port))
    if known is not None:
        return known
    if not 0 <= port <= 65535:
        raise ArgumentError(f"port must be in [0, 65535], with the local rank, got {port}")
    try:
        server = _Server(host, port)
    except OSError as error:
        raise ArgumentError(
            f"port {port} of {host} cannot be listened on: {error.strerror or error}; give another one, or 0 for any"
        ) from error
    return _servers.setdefault((host, server.port), server)


class _Server(socketserver.ThreadingTCPServer):
    """Listens on one port for all loaders of this process that asked for it."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.loaders: dict[str, tuple[dict[str, str], weakref.ref[LoaderCounters]]] = {}
        super().__init__((host, port), _Handler)
        self.host, self.port, self._pid = host, int(self.server_address[1]), os.getpid()
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"
        self._thread = threading.Thread(target=self._serve, name="penstock-metrics", daemon=True)
        system.watch(self)

    def start(self) -> None:
        """Begin to answer, if this was not called before."""
        if self._thread.ident is None:
            self._thread.start()

    def _serve(self) -> None:
        while self.loaders:
            self.handle_request()
        self.server_close()

    def remove(self, name: str) -> None:
        """Serve a loader no longer, and end with the last one."""
        self.loaders.pop(name, None)
        if self.loaders or os.getpid() != self._pid:
            return
        _servers.pop((self.host, self.port), None)
        with contextlib.suppress(OSError):  # wakes the thread, which then sees that there is no loader
            socket.create_connection((self.host, self.port), timeout=1).close()
        if threading.current_thread() is not self._thread:  # a garbage collection there may end a loader
            self._thread.join(timeout=1)

    def renew_in_child(self) -> None:
        """Let go of the port in a forked child, which has no thread that answers."""
        _servers.pop((self.host, self.port), None)
        self.loaders.clear()
        self.socket.close()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  # as socketserver's
        """Log what a request ended with, such as a client that has gone."""
        _logger.warning("a request for metrics failed", exc_info=sys.exception())

    def format(self, *, is_open: bool) -> str:
        """Return the metrics of all loaders that live."""
        found = [(labels, counters) for labels, known in [*self.loaders.values()] if (counters := known()) is not None]
        return format_metrics([(labels, counters.stats()) for labels, counters in found], is_open=is_open)


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = 5.0  # seconds in which a request must come
    server: _Server

    def do_GET(self) -> None:
        """Answer a request, in the format that it asks for."""
        if self.path.partition("?")[0] not in {"/", "/metrics"}:
            self.send_error(404)
            return
        is_open = _OPEN_METRICS in self.headers.get("Accept", "")
        body = self.server.format(is_open=is_open).encode()
        self.send_response(200)
        kind = f"{_OPEN_METRICS}; version=1.0.0" if is_open else "text/plain; version=0.0.4"
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002  # as of http.server
        """Write nothing: standard error is the script's."""
