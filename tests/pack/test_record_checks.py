"""What is done with records before they are written: classes keep their names where a store numbers them anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.pack.pipeline.record_checks import RecordChecks
from penstock.sample import Field, Schema
from tests.pack.images import picture


@pytest.mark.parametrize(("label", "expected"), [(0, 2), (1, 0), (2, 1), (7, 7), (-1, -1), (None, None)])
def test_labels_keep_their_class_where_a_store_numbers_classes_anew(label: int | None, expected: int | None) -> None:
    """A store that numbers classes by name gets the numbers of the same names; numbers of no class stay."""
    held = Schema({"label": Field("label", ("z", "a", "k")), "tags": Field("int64[*]", ("z", "a", "k"))})
    stored = Schema({"label": Field("label", ("a", "k", "z")), "tags": Field("int64[*]", ("a", "k", "z"))})
    checks = RecordChecks.for_schema(held, stored, "header", "none")

    fields: Any = checks.apply({"label": label, "tags": np.array([0, 0, 2])}).fields

    assert fields["label"] == expected
    assert fields["tags"].tolist() == [2, 2, 1]


@pytest.mark.parametrize("has_place", [True, False])
def test_the_size_is_added_where_the_store_has_a_place(has_place: bool) -> None:
    """Width and height are fields of the record only if they are stored."""
    held = Schema({"image": Field("image")})
    stored = Schema({**held.fields, "width": Field("int"), "height": Field("int")}) if has_place else held

    fields = RecordChecks.for_schema(held, stored, "header", "none").apply({"image": picture(0)}).fields

    assert set(fields) == set(stored.fields)
