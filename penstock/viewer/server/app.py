"""The application: the page, and the requests of each part."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.responses import FileResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from penstock.viewer.server.answers import answer_error
from penstock.viewer.server.guard import Guard
from penstock.viewer.session import Session

__all__ = ["make_app"]

PAGE: Final = Path(__file__).resolve().parent.parent / "page"
_PARTS: Final = ("browse", "live")
"""Folders of this package whose module ``routes`` has ``ROUTES``."""


def make_app(session: Session, token: str) -> ASGIApp:
    """The application of a viewer, behind its guard."""
    routes: list[BaseRoute] = [Route("/", lambda _: FileResponse(PAGE / "index.html"))]
    for part in _PARTS:
        routes += importlib.import_module(f"penstock.viewer.{part}.routes").ROUTES
    routes.append(Mount("/page", StaticFiles(directory=PAGE)))
    app = Starlette(routes=routes, exception_handlers={Exception: answer_error})
    app.state.session = session
    return Guard(app, token)
