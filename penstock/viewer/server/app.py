"""The application: the page, the requests of each part, and who may ask: programs that know the token, and its pages.

The token is the first part of each path, so that a link is all that a browser needs, and no cookie is sent by another
page. A ``Host`` that is not this machine is refused (DNS rebinding), and so is an ``Origin`` that is not this server's.
Pages of this machine may show the viewer in a frame, as notebooks do: they need its address, which has the token.

Files of the page are those that lie in ``page/`` when a viewer is started; no path of a request is looked up on disk.
"""

from __future__ import annotations

import importlib
import re
import secrets
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.viewer.server.answers import DATA_ERRORS, answer, answer_error
from penstock.viewer.session import Session

__all__ = ["list_routes", "make_app"]

PAGE: Final = Path(__file__).resolve().parent.parent / "page"
_PARTS: Final = ("browse", "model", "find", "picks", "compare", "live")
"""Folders of this package whose module ``routes`` has ``ROUTES``."""
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
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


def make_app(session: Session, token: str) -> ASGIApp:
    """Return the application of a viewer, behind its guard."""
    handlers = {**dict.fromkeys((*DATA_ERRORS, Exception), answer_error), HTTPException: _answer_refusal}
    app = Starlette(routes=list_routes(), exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.state.session = session
    return Guard(app, token)


def list_routes() -> list[BaseRoute]:
    """Return what is answered: the files of the page, and the requests of each part."""
    files = {path.name: path for path in sorted(PAGE.iterdir()) if path.suffix in _TYPES}

    def send_file(request: Request) -> Response:
        path = files.get(request.path_params.get("name", "index.html"))
        if path is None:
            raise HTTPException(404)
        return FileResponse(path, media_type=_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})

    routes: list[BaseRoute] = [Route("/", send_file), Route("/page/{name}", send_file)]
    for part in _PARTS:
        routes += importlib.import_module(f"penstock.viewer.{part}.routes").ROUTES
    return routes


def _answer_refusal(request: Request, error: Exception) -> Response:
    """Return what no route answers: another path, or another method."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    text = f"{request.method} is not answered here" if status == 405 else "there is nothing at this path"
    return answer({"error": text}, status)


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
            refusal.headers["connection"] = "close"  # or requests would be sent whose answers nobody reads
            await refusal(scope, receive, send_with_headers)
            return
        await self._app({**scope, "path": f"/{rest}", "raw_path": b""}, receive, send_with_headers)


def _is_own(headers: Headers) -> bool:
    """Return whether a request names this machine, and comes from no other page."""
    hosts, origin = headers.getlist("host"), headers.get("origin")
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        return False
    return origin is None or origin in {f"http://{hosts[0]}", f"https://{hosts[0]}"}


def _is_short(headers: Headers) -> bool:
    """Return whether a request has no body, or one whose length is told and allowed."""
    length = headers.get("content-length", "0")
    is_told = length.isascii() and length.isdecimal() and len(length) < 20
    return is_told and int(length) <= MAX_BODY_NBYTES and "transfer-encoding" not in headers
