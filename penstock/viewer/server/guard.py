"""Who may ask: programs of this machine that know the token, and pages of this server.

The token is the first part of each path, so that a link is all that a browser needs, and no cookie is sent by another
page. A ``Host`` that is not this machine is refused (DNS rebinding), and so is an ``Origin`` that is not this server's.
"""

from __future__ import annotations

import secrets
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard", "make_token"]

_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def make_token() -> str:
    """A token that cannot be guessed, for a path."""
    return secrets.token_urlsafe(24)


class Guard:
    """Passes a request on, if it may be answered, with the token taken off its path; else refuses it.

    Parameters
    ----------
    app : ASGI application
        What answers.
    token : str
        The first part of the paths of this viewer.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        prefix, _, rest = scope["path"].removeprefix("/").partition("/")
        host = urlsplit(f"//{headers.get('host', '')}")
        origin = headers.get("origin")
        refusal: Response | None = None
        if host.hostname not in _HOSTS or (origin is not None and urlsplit(origin).netloc != host.netloc):
            refusal = PlainTextResponse("This viewer answers its own pages on this machine only.\n", 403)
        elif not secrets.compare_digest(prefix.encode(), self._token):
            refusal = PlainTextResponse("The address has no valid token; use the one that was printed.\n", 404)
        elif not rest and not scope["path"].endswith("/"):
            refusal = Response(status_code=307, headers={"location": f"/{prefix}/"})
        if refusal is not None:
            await refusal(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._app({**scope, "path": f"/{rest}", "raw_path": b""}, receive, send_with_headers)
