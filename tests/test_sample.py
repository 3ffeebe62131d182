"""Schemas: which names and kinds a field may have, whoever says them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ArgumentError
from penstock.sample import Field, Schema

NAMES = [
    "image",
    "bbox_2d",
    "left.jpg",
    ".hidden",
    "class label",
    "größe",
    "画像",
    "می\u200cشود",
    "x" * 200,
    "a..b",
    "-",
]
BAD_NAMES = [
    "", ".", "..", "../../victim", "/etc/passwd", "a/b", "a\\b", "a\0b", "a\nb", "\x1b[31m", "a\x85b", "a\u2028b",
    "x" * 201, "画" * 67, "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_that_people_use_are_allowed(name: str) -> None:
    """Words of any language, with dots, spaces and dashes."""
    schema = Schema({name: Field("image")})

    assert Schema.from_json(schema.to_json()) == schema


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_names_that_are_no_part_of_a_file_name_are_refused(name: str) -> None:
    """Separators, control characters, what UTF-8 has no bytes for, and more bytes than a file's name takes."""
    with pytest.raises(ArgumentError, match="field name must be") as caught:
        Schema({"image": Field("image"), name: Field("image")})
    with pytest.raises(ArgumentError, match="field name must be"):
        Schema.from_json({name: {"kind": "image"}})

    str(caught.value).encode()  # can be printed


@pytest.mark.parametrize("name", [1, None, b"image", ("image",)])
def test_names_that_are_no_text_are_refused(name: Any) -> None:
    """A schema made in Python is checked as one that was read."""
    with pytest.raises(ArgumentError, match="field name must be"):
        Schema({name: Field("image")})
