"""One order of preference: stores of different containers choose the same image, label and key."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.sample import Field
from penstock.stores.fields import usual_names
from penstock.stores.fields.column_names import name_columns
from penstock.stores.fields.usual_names import KEY_NAMES, LABEL_NAMES
from penstock.stores.mongo.fields import find_layout


def test_names_are_lower_case_and_different() -> None:
    """Names are compared in lower case, and none is in a list twice."""
    for listed in usual_names.__all__:
        names = getattr(usual_names, listed)
        assert len(set(names)) == len(names)
        assert all(name == name.lower() for name in names)


@pytest.mark.parametrize("first", range(len(LABEL_NAMES) - 1))
def test_all_stores_prefer_the_same_label(first: int, tmp_path: Path) -> None:
    """Of two columns of numbers with usual names, the same one is the label in every container."""
    names = LABEL_NAMES[first], LABEL_NAMES[first + 1]
    pq.write_table(pa.table({names[1]: [7], names[0]: [3], "key": ["a"]}), tmp_path / "t.parquet")

    with ps.open(tmp_path / "t.parquet") as store:
        assert store[0].fields["label"] == 3
    assert find_layout([{names[1]: 7, names[0]: 3}], fields=None, key=None).paths["label"] == names[0]
    named = name_columns({names[1]: Field("int"), names[0]: Field("int")})
    assert named.columns[list(named.schema.fields).index("label")] == names[0]


@pytest.mark.parametrize("first", range(len(KEY_NAMES) - 1))
def test_all_stores_prefer_the_same_key(first: int, tmp_path: Path) -> None:
    """Of two columns of texts with usual names, the same one has the keys in every container."""
    names = KEY_NAMES[first], KEY_NAMES[first + 1]
    pq.write_table(pa.table({names[1]: ["b"], names[0]: ["a"], "label": [3]}), tmp_path / "t.parquet")
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["images"], file["labels"] = np.zeros((1, 8, 8, 1), np.uint8), [3]
        for name, text in zip(names, "ab", strict=True):
            file[name] = [text]

    for path in ("t.parquet", "t.h5"):
        with ps.open(tmp_path / path) as store:
            assert store.keys()[0] == "a"
    assert find_layout([{names[1]: "b", names[0]: "a", "x": 1}], fields=None, key=None).key == names[0]
    assert name_columns({names[1]: Field("text"), names[0]: Field("text")}).key == names[0]
