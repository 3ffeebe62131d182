"""YAML of unknown origin: texts, lists and mappings, within limits."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.annotations.yolo.description import parse_yaml
from penstock.errors import OptionalPackageError
from tests.annotations.damage import Damage, apply_damage, damage

TEXT = "path: .\nnames:\n  0: cat\n  1: 'dog'\nlist: [a, &x b, *x]\nnc: 2 # two\n"


def test_scalars_are_texts() -> None:
    """Neither numbers nor booleans nor dates are made of them."""
    assert parse_yaml("a: [no, 1, 1.5, 2020-01-01, ~, '']") == {"a": ["no", "1", "1.5", "2020-01-01", "~", ""]}


def test_tags_construct_nothing() -> None:
    """A tag of Python's leaves a text or a list."""
    assert parse_yaml("a: !!python/object/apply:os.system ['true']") == {"a": ["true"]}


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x]\nb: [" + "*a, " * 101 + "]",
        "[" * 40 + "]" * 40,
        "[" * 1_000_000,
        "- " * 1_000_000,
        "x" * 3_000_000,
        "&a [*a]",
        "a: *missing",
        '"\\UFFFFFFFF"',
        "{[a]: b}",
        "a: b\n---\nc: d",
        "a: \x07",
        "%YAML " + "9" * 5000 + ".1\n---\na",
    ],
    ids=range(12),
)
def test_what_is_above_a_limit_or_no_yaml_is_a_value_error(text: str) -> None:
    """At once, without the memory or the depth that the document asks for."""
    with pytest.raises(ValueError, match=r"it must|it is no YAML"):
        parse_yaml(text)


@given(st.one_of(st.text(max_size=60), damage()))
def test_no_other_exception_leaves(given_text: str | list[Damage]) -> None:
    """Of any text, or of a damaged document."""
    if isinstance(given_text, str):
        text = given_text
    else:
        text = apply_damage(TEXT.encode(), given_text).decode("utf-8", "replace")

    try:
        parse_yaml(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017  # either is right


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional."""
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(OptionalPackageError, match=r"penstock-data\[yolo\]"):
        parse_yaml("a")
