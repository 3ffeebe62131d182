"""Names of records: natural order, and names that some file systems take for one another."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from penstock.stores.fields.record_names import find_name_clashes, make_natural_key


def test_numbers_count_as_numbers() -> None:
    """A number in a name counts by its value: img2 before img10, whatever stands around it."""
    names = ["img10", "img2", "a10b2", "a10b10", "img", "10", "9", "b"]

    ordered = sorted(names, key=make_natural_key)

    assert ordered == ["9", "10", "a10b2", "a10b10", "b", "img", "img2", "img10"]


def test_equal_numbers_go_by_their_text() -> None:
    """Names whose numbers are equal keep one order, whichever way they come."""
    assert sorted(["x1", "x01", "x001"], key=make_natural_key) == sorted(["x001", "x1", "x01"], key=make_natural_key)


@given(st.lists(st.text(max_size=12), max_size=12))
def test_any_names_can_be_ordered(names: list[str]) -> None:
    """Every text has a place, also digits of other scripts; the order does not depend on the input's."""
    backwards = names[::-1]

    assert sorted(names, key=make_natural_key) == sorted(backwards, key=make_natural_key)


def test_clashes_are_positions_with_the_first_of_their_name() -> None:
    """Equal names, names equal but for case, and names equal but for composition clash with the first of them."""
    composed, apart = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    keys = ["a/x.jpg", "a/X.JPG", "a/y.jpg", composed, apart, "a/x.jpg"]

    assert find_name_clashes(keys) == {1: "a/x.jpg", 4: composed, 5: "a/x.jpg"}


def test_the_same_object_twice_clashes() -> None:
    """Two records of one name clash, also where both names are one object."""
    key = "a.jpg"

    assert find_name_clashes([key, key]) == {1: key}


def test_different_names_do_not_clash() -> None:
    """Names that differ otherwise are left alone."""
    assert find_name_clashes(["a/1.jpg", "a/2.jpg", "b/1.jpg"]) == {}
