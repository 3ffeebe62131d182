"""The application: the page, and the requests of each part.

Files of the page are those that lie in ``page/`` when a viewer is started; no path of a request is looked up on disk.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from penstock.viewer.server.answers import DATA_ERRORS, answer, answer_error
from penstock.viewer.server.guard import Guard
from penstock.viewer.session import Session

__all__ = ["list_routes", "make_app"]

PAGE: Final = Path(__file__).resolve().parent.parent / "page"
_PARTS: Final = ("browse", "model", "find", "picks", "compare", "live")
"""Folders of this package whose module ``routes`` has ``ROUTES``."""
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def make_app(session: Session, token: str) -> ASGIApp:
    """The application of a viewer, behind its guard."""
    handlers = {**dict.fromkeys((*DATA_ERRORS, Exception), answer_error), HTTPException: _answer_refusal}
    app = Starlette(routes=list_routes(), exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.state.session = session
    return Guard(app, token)


def list_routes() -> list[BaseRoute]:
    """What is answered: the files of the page, and the requests of each part."""
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
    """What no route answers: another path, or another method."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    text = f"{request.method} is not answered here" if status == 405 else "there is nothing at this path"
    return answer({"error": text}, status)
