"""Keys of records without names."""

from __future__ import annotations

import pytest

from penstock.stores.common.keys import RowKeys, make_keys


def test_rows_are_a_sequence_of_texts() -> None:
    """Numbers from 0, by index, by slice, iterated and searched; other texts are not there."""
    keys = RowKeys(12)

    assert list(keys) == [str(row) for row in range(12)]
    assert (keys[-1], keys[3:5], len(keys), keys.index("7")) == ("11", ["3", "4"], 12, 7)
    assert "11" in keys
    for other in ("12", "-1", "01", "", "x", "²", 3, "1" * 100):
        assert other not in keys
    with pytest.raises(IndexError):
        keys[12]


def test_names_with_zero_characters_are_kept() -> None:
    """A name that the compact list cannot hold is not cut in two."""
    names = ["a", "b\0c", ""]

    assert list(make_keys(names)) == names
    assert list(make_keys(["a", ""])) == ["a", ""]
