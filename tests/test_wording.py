"""Counts in messages."""

from __future__ import annotations

import pytest

from penstock.wording import counted


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "image", "1 image"),
        (2, "image", "2 images"),
        (0, "record", "0 records"),
        (1, "class", "1 class"),
        (3, "class", "3 classes"),
        (2, "entry", "2 entries"),
        (2, "day", "2 days"),
        (2, "class folder", "2 class folders"),
        (1_234_567, "pixel", "1,234,567 pixels"),
    ],
)
def test_one_is_singular_and_all_else_plural(number: int, noun: str, said: str) -> None:
    """The number decides the noun's form; thousands are separated."""
    assert counted(number, noun) == said
