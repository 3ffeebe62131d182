"""Numbers in the texts of annotations."""

from __future__ import annotations

from typing import Any

__all__ = ["parse_int", "parse_number"]


def parse_number(value: Any, what: str) -> float:
    """A number, or a text of one; ValueError with ``what`` if it is none. It may be infinite."""
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TypeError  # noqa: TRY301  # one handler
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"its {what} must be a number, got {value!r:.100}") from None


def parse_int(value: Any, what: str) -> int:
    """A whole number, or a text of one; ValueError with ``what`` if it is none."""
    number = parse_number(value, what)
    if not number.is_integer() or abs(number) > 2**53:
        raise ValueError(f"its {what} must be a whole number, got {value!r:.100}")
    return int(number)
