"""Connections of a viewer's server: how many there may be, and how long each may take to send a request.

Any program of the machine can connect, without the token. What it holds open must not keep the pages from being
answered, and must not keep the viewer from being closed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["LimitedProtocol"]

MOST_CONNECTIONS: Final = 128
REQUEST_S: Final = 10.0
"""Time in which the line and the headers of a request must come, from the connection or the answer before it."""
_CLOSING_S: Final = 1.0
"""How long answers are sent after the viewer was told to end."""


class LimitedProtocol(H11Protocol):
    """A connection; above the limit, the one that waits longest for a request is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._await_request(self.cycle)
        if len(self.connections) > MOST_CONNECTIONS:
            waiting = [each for each in self.connections if isinstance(each, LimitedProtocol) and each.is_waiting]
            min(waiting, key=lambda each: each.waits_since).transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may have come already."""
        answered = self.cycle
        super().on_response_complete()
        self._await_request(answered)

    def shutdown(self) -> None:
        """End after the running answer; a client that does not read it is not waited for."""
        super().shutdown()
        self.loop.call_later(_CLOSING_S, self.transport.abort)

    @property
    def is_waiting(self) -> bool:
        """Whether no request is answered, or its headers have not come."""
        return not self.transport.is_closing() and getattr(self.cycle, "response_complete", True)

    def _await_request(self, before: Any) -> None:
        """Close the connection if no request follows ``before``, the cycle of the last one, in time."""
        self.waits_since = self.loop.time()

        def close_silent() -> None:
            if self.cycle is before:
                self.transport.close()

        self.loop.call_later(REQUEST_S, close_silent)
