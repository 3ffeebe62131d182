"""Splits: disjoint, complete, of the sizes asked for, with each part's share of labels; the same on every machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.datasets.splits.stratification import LabelCounts, assign_groups, stratify

RNG = np.random.default_rng(7)
CLASSES = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ps.Store:
    """Two hundred records without images, with labels of every kind."""
    path = tmp_path_factory.mktemp("splits") / "p.lmdb"

    def generate() -> Any:
        for number in range(200):
            yield {
                "label": CLASSES[min(3, int(RNG.exponential(1)))],
                "tags": np.flatnonzero(RNG.random(6) < 0.3),
                "hot": RNG.random(5) < 0.2,
                "classes": RNG.integers(0, 3, RNG.integers(0, 5)),
                "patient": f"p{number // 7}",
                "score": number / 2,
            }

    schema: Any = {"tags": "int64[*]", "classes": ps.Field("int64[*]", ("x", "y", "z"))}
    ps.pack(generate(), path, schema=schema, classes=CLASSES)
    return ps.open(path)


def counts_of(store: ps.Store, field: str, indices: Any) -> dict[int, int]:
    """How often each value of a field occurs in some records, counted one by one."""
    found: dict[int, int] = {}
    for index in indices.tolist():
        value = store[index].fields[field]
        values = [value] if isinstance(value, int) else np.flatnonzero(value) if value.dtype == bool else value
        for each in values:
            found[int(each)] = found.get(int(each), 0) + 1
    return found


def assert_partition(parts: ps.Split, total: int) -> None:
    """Each record is in one part."""
    assert sorted(np.concatenate(list(parts)).tolist()) == list(range(total))


@pytest.mark.parametrize("by", [None, "label", "tags", "hot", "classes", "patient", ["label", "classes"]])
@pytest.mark.parametrize("parts", [[0.8, 0.2], [120, 60, 20], {"x": 0.5, "y": 0.25, "z": 0.25}, [0.0, 1.0]])
def test_parts_have_their_sizes(store: ps.Store, by: Any, parts: Any) -> None:
    """Of fractions and of numbers, whatever they are stratified by."""
    split = ps.split(store, parts, by=by)

    numbers = list(parts.values()) if isinstance(parts, dict) else parts
    assert [len(part) for part in split] == [round(n * 200) if sum(numbers) == 1 else n for n in numbers]
    assert_partition(split, 200)
    assert split.column.tolist() == [next(k for k in range(len(split)) if i in split[k]) for i in range(200)]


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_one_label_is_divided_to_one_record(store: ps.Store, seed: int) -> None:
    """Each part has its share of each class, rounded."""
    split = ps.split(store, [0.7, 0.2, 0.1], by="label", seed=seed)

    whole = counts_of(store, "label", np.arange(200))
    for number, share in enumerate((0.7, 0.2, 0.1)):
        found = counts_of(store, "label", split[number])
        for label, count in whole.items():
            assert abs(found.get(label, 0) - share * count) <= 1 + number


@pytest.mark.parametrize("by", ["tags", "hot", "classes"])
def test_several_labels_are_divided_better_than_at_random(store: ps.Store, by: str) -> None:
    """Each part has about its share of each label; the largest difference is far below that of random splits."""

    def worst(split: ps.Split) -> float:
        whole, found = counts_of(store, by, np.arange(200)), counts_of(store, by, split["val"])
        return max(abs(found.get(label, 0) - 0.2 * count) for label, count in whole.items())

    stratified = [worst(ps.split(store, [0.8, 0.2], by=by, seed=seed)) for seed in range(5)]
    at_random = [worst(ps.split(store, [0.8, 0.2], seed=seed)) for seed in range(5)]

    assert max(stratified) <= 2
    assert np.median(at_random) > 2


@pytest.mark.parametrize("by", [None, "label", ["label", "tags"]])
def test_no_group_is_in_two_parts(store: ps.Store, by: Any) -> None:
    """And the parts have about their sizes."""
    split = ps.split(store, [0.6, 0.2, 0.2], by=by, groups="patient", seed=3)

    patients = [{store[index].fields["patient"] for index in part.tolist()} for part in split]
    assert_partition(split, 200)
    assert sum(map(len, patients)) == len(set.union(*patients))
    assert np.allclose(np.array(list(split.counts.values())) / 200, [0.6, 0.2, 0.2], atol=0.05)


def test_the_same_seed_gives_the_same_split(store: ps.Store) -> None:
    """On every machine: these are the first indices that seed 0 gave when this was written."""
    by = [None, "label", "tags"]

    found = [ps.split(store, [0.9, 0.1], by=each)[1][:6].tolist() for each in by]
    assert found == FIRST
    for each in by:
        a, b, c = (ps.split(store, [0.9, 0.1], by=each, seed=seed).column.tolist() for seed in (5, 5, 6))
        assert a == b != c


FIRST = [[4, 6, 12, 13, 23, 39], [4, 6, 12, 13, 39, 47], [9, 13, 25, 28, 34, 45]]


def test_the_report_shows_all_parts(store: ps.Store) -> None:
    """Sizes, counts and shares of each value in each part, and values that a part lacks."""
    split = ps.split(store, {"fit": 0.99, "test": 0.01}, by=["label", "classes"])

    lines = split.report().splitlines()
    assert lines[0] == "200 records: fit 198 (99.0 %), test 2 (1.0 %), by label, classes, seed 0"
    whole, fit = (counts_of(store, "label", part) for part in (np.arange(200), split["fit"]))
    row = next(line for line in lines if line.startswith("a "))
    assert row.split()[:3] == ["a", str(whole[0]), str(fit[0])]
    assert f"{100 * fit[0] / whole[0]:.1f} %" in row
    assert any(line.startswith("absent from test: ") for line in lines)
    for histogram in split.histograms:
        for value, counts in zip(histogram.values, histogram.counts.tolist(), strict=True):
            names = store.schema[histogram.field].classes
            assert counts == [counts_of(store, histogram.field, part).get(names.index(value), 0) for part in split]


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_a_split_is_written_and_read(store: ps.Store, suffix: str, tmp_path: Path) -> None:
    """As a column by record, or as lists of indices; it is refused for other records."""
    split = ps.split(store, [0.8, 0.2], by="label", seed=4)
    split.write(tmp_path / f"s.{suffix}")

    again = ps.Split.read(tmp_path / f"s.{suffix}", store)

    assert (again.names, again.column.tolist()) == (split.names, split.column.tolist())
    assert again["val"].tolist() == split["val"].tolist()
    if suffix == "csv":
        lines = (tmp_path / "s.csv").read_text().splitlines()
        assert lines[:2] == ["index,key,part", f"0,0,{split.names[split.column[0]]}"]
    else:
        assert json.loads((tmp_path / "s.json").read_text())["parts"]["val"] == split["val"].tolist()
        assert again.report() == split.report()
    ps.pack(({"label": 1, "x": number} for number in range(9)), tmp_path / "other.lmdb")
    with pytest.raises(ps.StateError, match="of other records"):
        ps.Split.read(tmp_path / f"s.{suffix}", tmp_path / "other.lmdb")


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_any_key_is_written_and_read(suffix: str, tmp_path: Path) -> None:
    """Also one with ends of lines, as names of files may have; a mark of byte order before them is left out."""
    keys = ["a\nb", "a\rb", "a\r\nb", "a\u2028b\x85\x0b", 'a,"b"', " a "]
    ps.pack([{"__key__": key, "x": 1} for key in keys], tmp_path / "p.lmdb")
    split = ps.split(tmp_path / "p.lmdb", [3, 3], seed=1)
    file = tmp_path / f"s.{suffix}"
    split.write(file)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())

    again = ps.Split.read(file, tmp_path / "p.lmdb")

    assert again["train"].tolist() == split["train"].tolist()


def test_rows_beside_those_of_the_records_are_refused(store: ps.Store, tmp_path: Path) -> None:
    """A row that is missing, one more, another key, number or length: the split is of other records."""
    file = tmp_path / "s.csv"
    ps.split(store, [0.5, 0.5], seed=1).write(file)
    first, *rows = file.read_text().splitlines()
    assert len(ps.Split.read(file, store)["val"]) == len(store) // 2

    for wrong in (rows[:-1], [*rows, "200,x,val"], [rows[1], *rows[1:]], [rows[0].rpartition(",")[0], *rows[1:]]):
        file.write_text("\n".join([first, *wrong]))

        with pytest.raises(ps.StateError, match="of other records than those of this store"):
            ps.Split.read(file, store)


def test_a_split_larger_than_its_records_is_not_read(store: ps.Store, tmp_path: Path) -> None:
    """JSON of lists takes thirty times as much memory as its text."""
    (tmp_path / "s.json").write_text('{"parts": [' + "[]," * 400_000 + "[]]}")

    with pytest.raises(ps.StateError, match=r"it must have at most 1,061,376 bytes for 200 records, got 1,200,"):
        ps.Split.read(tmp_path / "s.json", store)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "penstock-split"}', "index,key,part\n0,0", "a,b"])
@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_a_damaged_file_is_refused(store: ps.Store, content: str, suffix: str, tmp_path: Path) -> None:
    """With an error of penstock."""
    (tmp_path / f"s.{suffix}").write_text(content)

    with pytest.raises(ps.StateError):
        ps.Split.read(tmp_path / f"s.{suffix}", store)


@pytest.mark.parametrize(
    ("parts", "arguments", "reason"),
    [
        ([1.0], {}, "at least two fractions"),
        ([0.8, 0.1], {}, "fractions with the sum 1, or numbers with the sum 200"),
        ([100, 50], {}, "numbers with the sum 200"),
        ([-0.5, 1.5], {}, "at least two fractions"),
        ([0.5, 0.5], {"by": "score"}, "by must name fields of labels"),
        ([0.5, 0.5], {"by": "nothing"}, "field must be one of"),
        ([0.5, 0.5], {"groups": "tags"}, "groups must be a field of kind text|groups must name a field"),
        ([0.5, 0.5], {"seed": -1}, "seed"),
    ],
)
def test_wrong_arguments_say_what_is_allowed(store: ps.Store, parts: Any, arguments: Any, reason: str) -> None:
    """With what was given."""
    with pytest.raises(ps.ArgumentError, match=reason):
        ps.split(store, parts, **arguments)


def test_a_part_is_a_subset_of_a_dataset(store: ps.Store) -> None:
    """Its indices are those of the store."""
    split = ps.split(store, [0.8, 0.2], by="label")

    val: ps.Subset[Any] = ps.Subset(ps.StoreDataset(store, fields="label"), split["val"])

    assert [val[number] for number in range(len(val))] == store.column("label")[split["val"]].tolist()
    with pytest.raises(ps.ArgumentError, match="part must be one of train, val"):
        split["test"]


@settings(max_examples=settings().max_examples // 2)
@given(
    labels=st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=40),
    weights=st.lists(st.integers(0, 5), min_size=2, max_size=4).filter(any),
    seed=st.integers(0, 2**64 - 1),
)
def test_any_labels_are_divided_into_exact_sizes(labels: list[list[int]], weights: list[int], seed: int) -> None:
    """Sizes are exact, and the tally counts every label once; groups are assigned whole."""
    total = len(labels)
    ends = np.rint(np.cumsum(weights) / sum(weights) * total).astype(np.int64)
    sizes = np.diff(ends, prepend=0)
    items = np.array([item for item, some in enumerate(labels) for _ in some], np.int64)
    flat = np.array([label for some in labels for label in some], np.int64)
    counts = LabelCounts.from_pairs(items, flat, total, 6)

    parts = stratify(counts, sizes, seed)
    groups = assign_groups(counts, np.ones(total, np.int64), sizes / total, seed)

    assert np.bincount(parts, minlength=len(sizes)).tolist() == sizes.tolist()
    assert counts.tally(parts, len(sizes)).sum(axis=1).tolist() == np.bincount(flat, minlength=6).tolist()
    assert set(groups.tolist()) <= set(range(len(sizes)))
