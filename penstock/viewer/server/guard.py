"""Who may ask: programs of this machine that know the token, and pages of this server.

The token is the first part of each path, so that a link is all that a browser needs, and no cookie is sent by another
page. A ``Host`` that is not this machine is refused (DNS rebinding), and so is an ``Origin`` that is not this server's.
Pages of this machine may show the viewer in a frame, as notebooks do: they need its address, which has the token.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["MAX_BODY_NBYTES", "Guard"]

MAX_BODY_NBYTES: Final = 64 << 20
"""Bytes that a request may send: a list of a few million records."""
_MAX_PATH: Final = 2000
_MAX_QUERY: Final = 16_000
_HOST: Final = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
_FRAMES: Final = "http://localhost:* http://127.0.0.1:* https://localhost:* https://127.0.0.1:*"
"""Jupyter's pages; those of Visual Studio Code have schemes of their own."""
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; "
    f"frame-ancestors 'self' {_FRAMES} vscode-webview: vscode-file:"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Guard:
    """Passes a request on to ``app``, if it may be answered, with the token taken off its path; else refuses it."""

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
        refusal: Response | None = None
        if not _is_own(headers):
            refusal = PlainTextResponse("This viewer answers its own pages on this machine only.\n", 403)
        elif not secrets.compare_digest(prefix.encode("utf-8", "replace"), self._token):
            refusal = PlainTextResponse("The address has no valid token; use the one that was printed.\n", 404)
        elif len(rest) > _MAX_PATH or len(scope["query_string"]) > _MAX_QUERY:
            refusal = PlainTextResponse("The address is too long.\n", 414)
        elif not _is_short(headers):
            refusal = PlainTextResponse(f"A request must send its length, at most {MAX_BODY_NBYTES} bytes.\n", 413)
        elif not rest and not scope["path"].endswith("/"):
            refusal = Response(status_code=307, headers={"location": f"/{prefix}/"})

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
            return
        await self._app({**scope, "path": f"/{rest}", "raw_path": b""}, receive, send_with_headers)


def _is_own(headers: Headers) -> bool:
    """Whether a request names this machine, and comes from no other page."""
    hosts, origin = headers.getlist("host"), headers.get("origin")
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        return False
    return origin is None or origin in {f"http://{hosts[0]}", f"https://{hosts[0]}"}


def _is_short(headers: Headers) -> bool:
    """Whether a request has no body, or one whose length is told and allowed."""
    length = headers.get("content-length", "0")
    is_told = length.isascii() and length.isdecimal() and len(length) < 20
    return is_told and int(length) <= MAX_BODY_NBYTES and "transfer-encoding" not in headers
