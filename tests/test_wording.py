"""Counts in messages."""

from __future__ import annotations

import pytest

from penstock.wording import counted, list_problems


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


def test_the_same_problem_of_other_files_is_shown_five_times() -> None:
    """Numbers, names, absolute paths and the name of the entry may differ; the rest of the text may not."""
    missing = [(f"dir/{n}.jpg", f"line {n}: there is no file /photos/dir/{n}.jpg; look there") for n in range(7)]
    named = [("", f"class 'c{n}' is unknown") for n in range(5)]

    assert list_problems([*missing, ("9.jpg", "line 9: it is empty"), *named]) == [
        *(f"{name}: {reason}" for name, reason in missing[:5]),
        "... and 2 more: line ...: there is no file ...; look there",
        "9.jpg: line 9: it is empty",
        *(reason for _, reason in named),
    ]
