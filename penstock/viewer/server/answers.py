"""How requests are read and answered: JSON, and errors in one sentence.

What is read raises ArgumentError if it is not of its kind.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import ArgumentError, PenstockError
from penstock.viewer.session import Session
from penstock.wording import to_plain

__all__ = ["DATA_ERRORS", "answer", "answer_error", "read_float", "read_index", "read_int", "session_of"]

DATA_ERRORS: Final[tuple[type[Exception], ...]] = (PenstockError, OSError, MemoryError)
"""What data that cannot be shown raise; other errors are faults of the viewer."""
_logger = logging.getLogger(__name__)


def session_of(request: Request) -> Session:
    """Return what the viewer of this request shows."""
    session: Session = request.app.state.session
    return session


def answer(value: object, status: int = 200) -> Response:
    """A JSON answer; not a number and infinity are null, and surrogates of undecodable names are escaped."""
    text = json.dumps(to_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(text, status, {"Cache-Control": "no-store"}, "application/json")


def answer_error(request: Request, error: Exception) -> Response:
    """Return an error as ``{"error": sentence}``: 400 for a wrong request, 422 for data that cannot be shown, else 500.

    The last is a fault of the viewer, and is logged with its traceback.
    """
    is_of_data = isinstance(error, DATA_ERRORS)
    status = 400 if isinstance(error, ArgumentError) else 422 if is_of_data else 500
    text = str(error) if is_of_data else f"{type(error).__name__}: {error}"
    if status == 500:
        _logger.error("%s %s", request.method, request.scope["path"], exc_info=error)
    return answer({"error": (text or "there is not enough memory")[:2000]}, status)


def read_int(request: Request, name: str, default: int, low: int, high: int) -> int:
    """Return an integer of the query, cut to ``low .. high``."""
    text = request.query_params.get(name, str(default))
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise ArgumentError(f"{name} must be an integer, got {text!r:.100}")
    return min(max(int(text), low), high)


def read_float(request: Request, name: str, default: float, low: float, high: float) -> float:
    """Return a finite number of the query, cut to ``low .. high``."""
    text = request.query_params.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ArgumentError(f"{name} must be a number, got {text!r:.100}")
    return min(max(value, low), high)


def read_index(request: Request, total: int) -> int:
    """The record in the path of the request, ``/api/.../{index:int}``."""
    index: int = request.path_params["index"]
    if not 0 <= index < total:
        raise ArgumentError(f"index must be in [0, {total}), got {index}")
    return index
