"""Packing iterators, loaders and single values: names, kinds, keys, resuming, and what is refused."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

import penstock as ps
from penstock.pack import PackProgress
from penstock.stores.common.lmdb.environment_writer import CommitLimits
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.pack.images import picture

ROOT = Path(__file__).resolve().parents[3]


def samples(count: int = 12) -> Iterator[dict[str, Any]]:
    """Dicts with a value of each kind."""
    for number in range(count):
        yield {
            "image": picture(number),
            "label": number % 3,
            "score": number / 4,
            "caption": f"picture {number}",
            "tokens": list(range(number + 1)),
            "embedding": np.full(4, number, np.float32),
            "extra": {"number": number, "tags": ["a", "b"]},
            "sound": b"RIFF" + bytes([number]) * 7,
        }


KINDS = {
    "image": "image", "label": "label", "score": "float", "caption": "text", "tokens": "int64[*]",
    "embedding": "float32[4]", "extra": "json", "sound": "bytes", "width": "int", "height": "int",
}  # fmt: skip


def kinds(store: ps.Store | ps.Schema) -> dict[str, str]:
    """The kinds of fields, by name."""
    schema = store if isinstance(store, ps.Schema) else store.schema
    return {name: field.kind for name, field in schema.fields.items()}


def assert_fields(found: Any, wanted: dict[str, Any]) -> None:
    """A record has all values of a sample."""
    for name, value in wanted.items():
        stored = found[name]
        assert np.array_equal(stored, value) if isinstance(value, list | np.ndarray) else stored == value, name


def test_a_generator_of_dicts_is_packed_with_the_schema_of_its_values(tmp_path: Path) -> None:
    """Each value is stored by the kind that holds it, under its name; keys are the numbers."""
    report = ps.pack(samples(), tmp_path / "p.lmdb")

    assert report.schema is not None
    assert kinds(report.schema) == KINDS
    with ps.open(tmp_path / "p.lmdb") as store:
        assert kinds(store) == KINDS
        assert list(store.keys()) == [str(number) for number in range(12)]
        for record, sample in zip(store, samples(), strict=True):
            assert_fields(record.fields, sample)
    assert ps.verify(tmp_path / "p.lmdb").ok


class Pair(NamedTuple):
    """A sample with names."""

    image: bytes
    angle: float


@pytest.mark.parametrize(
    ("given", "names", "expected"),
    [
        ((picture(0), 3), None, {"image": "image", "label": "label"}),
        ((picture(0), 0.5), None, {"image": "image", "target": "float"}),
        ((picture(0), np.float32(0.5), "a"), None, {"image": "image", "1": "float", "2": "text"}),
        ((picture(0), picture(1)), ("left", "right"), {"left": "image", "right": "image"}),
        ((picture(0), {"boxes": np.zeros((2, 4), np.float32)}), None, {"image": "image", "boxes": "float32[2,4]"}),
        (Pair(picture(0), 0.5), None, {"image": "image", "angle": "float"}),
        ("a text", None, {"text": "text"}),
        (picture(0), None, {"image": "image"}),
        (torch.arange(3), None, {"value": "int64[3]"}),
        (torch.arange(3), "tokens", {"tokens": "int64[3]"}),
        ((7,), None, {"value": "int"}),
        (torch.zeros(3, 5, 5), "input", {"input": "float32[3,5,5]"}),
        ({"a": True, "b": np.int16(3), "c": None, "d": []}, None, {"a": "int", "b": "int", "c": "text", "d": "json"}),
        ({"path": [1, [2, 3]], "words": ["a", "b"]}, None, {"path": "json", "words": "json"}),
        ({"mask": np.zeros((4, 5), bool)}, None, {"mask": "mask"}),
        ({"image": Image.new("RGB", (4, 5)), "depth_mask": Image.new("L", (4, 5))}, None,
         {"image": "image", "depth_mask": "mask"}),
    ],
)  # fmt: skip
def test_names_and_kinds_follow_the_sample(given: Any, names: Any, expected: dict[str, str], tmp_path: Path) -> None:
    """Of tuples, named tuples, dicts and single values; scalars of arrays are numbers."""
    schema = {"c": "text"} if isinstance(given, dict) and "c" in given else None

    ps.pack(iter([given, given]), tmp_path / "p.lmdb", names=names, schema=schema)

    with ps.open(tmp_path / "p.lmdb") as store:
        found = kinds(store)
        assert {name: kind for name, kind in found.items() if name not in {"width", "height"}} == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5], "float"),
        ([[1], [2, 3]], "int64[*]"),
        ([[], [2, 3]], "int64[*]"),
        ([np.zeros((1, 4)), np.zeros((3, 4))], "float64[*,4]"),
        ([np.zeros(2, np.float32), np.zeros(2)], "float64[2]"),
        ([[1, 2], [[1], [2]]], "json"),
        ([[1, 2], ["a"]], "json"),
        ([picture(0), b"no picture"], "bytes"),
        ([None, 3], "int"),
    ],
)
def test_a_field_gets_the_kind_that_holds_all_of_its_values(values: list[Any], kind: str, tmp_path: Path) -> None:
    """Ints and floats are floats, lengths that differ are free, lists of other things are JSON."""
    ps.pack(({"x": value} for value in values), tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        assert kinds(store) == {"x": kind}
        for record, value in zip(store, values, strict=True):
            stored: Any = record.fields["x"]
            assert (
                stored is None
                if value is None
                else stored == value
                if kind == "bytes"
                else np.array_equal(stored, value)
            )


def test_values_of_no_common_kind_are_refused(tmp_path: Path) -> None:
    """With the field, the sample and both kinds, and nothing is written."""
    with pytest.raises(
        ps.PackError, match=r"field 'x' must have one kind: before sample 2 it is int, there it is text"
    ):
        ps.pack(({"x": value} for value in (1, 2, "three")), tmp_path / "p.lmdb")
    assert not (tmp_path / "p.lmdb").exists()


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        ({"x": "text"}, "field 'x' must be int by the schema, got str 'text'"),
        ({"x": 0.5}, "field 'x' must be int by the schema, got float 0.5"),
        ({"x": 2**63}, "field 'x' must be int by the schema"),
        ({"x": 1, "y": 2}, "it has a value 'y', which is no field of the schema"),
        ({"x": np.float64(0.5)}, "field 'x' must be int by the schema"),
        ({"x": torch.tensor(0.5)}, "field 'x' must be int by the schema"),
        ({"x": 1j}, "field 'x' must be int by the schema"),
        ({"x": np.datetime64("2020-01-01", "ns")}, "field 'x' must be int by the schema, got str '2020-01-01"),
        ({"x": np.timedelta64(1, "ns")}, "field 'x' must be int by the schema"),
    ],
)
def test_a_later_sample_that_does_not_fit_is_named(late: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """The schema is that of the first samples; a later one is named with what the schema says, and may be skipped."""

    def generate() -> Iterator[dict[str, Any]]:
        yield from ({"x": number} for number in range(150))
        yield late
        yield {"x": 151}

    with pytest.raises(ps.PackError, match=rf"150: {reason}"):
        ps.pack(generate(), tmp_path / "p.lmdb")
    assert not (tmp_path / "p.lmdb").exists()

    report = ps.pack(generate(), tmp_path / "p.lmdb", on_error="skip")
    assert (report.records, [entry.key for entry in report.skipped]) == (151, ["150"])
    with ps.open(tmp_path / "p.lmdb") as store:
        assert store[-1].key == "151"


@pytest.mark.parametrize(
    ("usual", "late", "kind"),
    [
        (np.zeros(2, np.float32), np.array([0.1, 1 / 3]), "float64[2]"),
        (np.zeros(2, np.float32), np.array([1e300, 1]), "float64[2]"),
        (np.zeros(2, np.float16), np.array([70000, 1], np.float32), "float32[2]"),
        (torch.zeros(2), torch.tensor([0.1, 1], dtype=torch.float64), "float64[2]"),
        (np.zeros(2, np.int8), np.array([1000, -5]), "int64[2]"),
        (np.zeros(2, np.uint8), np.array([-1, 0]), "int64[2]"),
        (np.zeros(2, np.int64), np.array([np.nan, 1]), "float64[2]"),
        (np.zeros(2, np.bool_), np.array([1, 7]), "int64[2]"),
        (np.zeros(2, np.float32), np.zeros(3, np.float32), "float32[*]"),
        ([0.5, 1], [0.5, 2**53 + 1], "json"),
    ],
)
def test_a_kind_that_the_first_samples_showed_rounds_no_later_value(
    usual: Any, late: Any, kind: str, tmp_path: Path
) -> None:
    """A later array that would change is an error that says which schema holds it; with that schema it is stored."""

    def generate() -> Iterator[dict[str, Any]]:
        yield from ({"x": usual} for _ in range(120))
        yield {"x": late}

    with pytest.raises(ps.PackError, match=re.escape(f"schema={{'x': {kind!r}}}")):
        ps.pack(generate(), tmp_path / "p.lmdb")
    ps.pack(generate(), tmp_path / "p.lmdb", schema={"x": kind})

    with ps.open(tmp_path / "p.lmdb") as store:
        np.testing.assert_array_equal(store[120].fields["x"], late)


def test_floats_are_rounded_to_a_kind_that_is_given_and_never_become_infinite(tmp_path: Path) -> None:
    """A caller who gives float16 asks for its rounding, and not for infinity where there is a number."""
    ps.pack([{"x": np.array([1 / 3, 0])}], tmp_path / "p.lmdb", schema={"x": "float16[2]"})
    with ps.open(tmp_path / "p.lmdb") as store:
        assert store[0].fields["x"].tolist() == [float(np.float16(1 / 3)), 0]

    with pytest.raises(ps.PackError, match=r"field 'x' must be float16\[2\]"):
        ps.pack([{"x": np.array([70000.0, 0])}], tmp_path / "q.lmdb", schema={"x": "float16[2]"})


@pytest.mark.parametrize("key", [1, 2.5, True, None])
def test_keys_of_a_dict_that_are_no_text_are_refused(key: object, tmp_path: Path) -> None:
    """JSON would make text of them, at any depth, and one key of 1 and "1"."""
    for value in ({key: 1}, {"a": [{key: 1}]}, [{"b": ({key: 1},)}]):
        with pytest.raises(ps.PackError, match=re.escape(f"a key of a dict must be text, got {key!r}")):
            ps.pack([{"x": value}], tmp_path / "p.lmdb")


def test_times_of_numpy_are_text(tmp_path: Path) -> None:
    """In nanoseconds, NumPy's own conversion makes an integer of them; a missing one is no value."""
    times = [np.datetime64("2020-01-01T12:00", "ns"), np.datetime64("NaT", "ns"), np.datetime64("2020-01-02", "D")]
    ps.pack([{"x": time} for time in times], tmp_path / "p.lmdb")

    with ps.open(tmp_path / "p.lmdb") as store:
        found = [record.fields["x"] for record in store]
    assert found == ["2020-01-01T12:00:00.000000000", None, "2020-01-02"]


def test_a_given_schema_is_followed(tmp_path: Path) -> None:
    """Kinds of some fields may be given; names of classes become numbers, in lists too; None leaves a value out."""
    schema: dict[str, str | ps.Field | None] = {
        "boxes": "boxes", "tags": ps.Field("int64[*]", ("x", "y", "z")), "debug": None,
    }  # fmt: skip
    given = [
        {"boxes": [[0, 0, 5, 5]], "tags": ["z", "x"], "label": "dog", "debug": object()},
        {"boxes": [], "tags": [], "label": "cat", "debug": object()},
    ]

    ps.pack(iter(given), tmp_path / "p.lmdb", schema=schema, classes=["cat", "dog"])

    with ps.open(tmp_path / "p.lmdb") as store:
        assert store.schema.fields == {
            "boxes": ps.Field("boxes"), "tags": schema["tags"], "label": ps.Field("label", ("cat", "dog"))
        }  # fmt: skip
        assert store[0].fields["boxes"].dtype == np.float32
        assert store[0].fields["tags"].tolist() == [2, 0]
        assert store[1].fields["boxes"].shape == (0, 4)
        assert store.column("label").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"schema": {"lable": "int"}}, "schema names 'lable', which the first samples do not have"),
        ({"schema": {"x": "integer"}}, "kind must be one of"),
        ({"schema": ps.Schema({"y": ps.Field("int")})}, "no field of the schema"),
        ({"key": "id"}, "key must be one of the values of a sample"),
        ({"names": ["a"]}, "names are for samples that are tuples"),
        ({"images": "webp"}, "images must be 'png'"),
        ({"images": "jpeg:101"}, "images must be 'png'"),
        ({"source_id": 3}, "source_id must be text"),
        ({"columns": {"image": "x"}}, "columns is no option of an iterable"),
        ({"jobs": 2}, "jobs=2 needs a source that is read by index"),
    ],
)
def test_wrong_arguments_say_what_is_allowed(arguments: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """And nothing is written."""
    with pytest.raises((ps.ArgumentError, ps.PackError), match=reason):
        ps.pack(({"x": number} for number in range(3)), tmp_path / "p.lmdb", **arguments)
    assert not (tmp_path / "p.lmdb").exists()


@pytest.mark.parametrize("given", [None, 3, {"a": 1}, {"a": [1], "b": [1, 2]}])
def test_what_is_no_source_is_refused(given: Any, tmp_path: Path) -> None:
    """With what may be given."""
    with pytest.raises(ps.ArgumentError, match=r"the source must be|a mapping is a source if"):
        ps.pack(given, tmp_path / "p.lmdb")


def test_no_samples_are_refused(tmp_path: Path) -> None:
    """An empty iterator and an empty list have no schema."""
    none: list[Any] = []
    for empty in (iter(none), none):
        with pytest.raises(ps.PackError, match="there are no samples to pack"):
            ps.pack(empty, tmp_path / "p.lmdb")


def test_an_error_of_the_iterator_says_after_how_many_samples(tmp_path: Path) -> None:
    """The error of the generator is its cause; nothing stays, since nothing could be resumed."""

    def generate() -> Iterator[int]:
        yield from range(120)
        raise KeyError("gone")

    with pytest.raises(ps.PackError, match=r"raised KeyError after 120 samples: 'gone'") as caught:
        ps.pack(generate(), tmp_path / "p.lmdb")
    assert isinstance(caught.value.__cause__, KeyError)
    assert not (tmp_path / "p.lmdb").exists()


def test_keys_are_taken_from_samples_and_compared(tmp_path: Path) -> None:
    """``__key__`` names a record and is no field; ``key=`` names one that stays. Equal names are listed."""
    ps.pack(({"__key__": f"k{number}", "x": number} for number in range(3)), tmp_path / "a.lmdb")
    ps.pack(({"id": 10 * number, "x": number} for number in range(3)), tmp_path / "b.lmdb", key="id")
    ps.pack(({"id": 10 * number, "x": number} for number in range(3)), tmp_path / "c.lmdb", key="index")

    with ps.open(tmp_path / "a.lmdb") as a, ps.open(tmp_path / "b.lmdb") as b, ps.open(tmp_path / "c.lmdb") as c:
        assert (list(a.keys()), list(a.schema.fields)) == (["k0", "k1", "k2"], ["x"])
        assert (list(b.keys()), list(b.schema.fields)) == (["0", "10", "20"], ["id", "x"])
        assert list(c.keys()) == ["0", "1", "2"]
    with pytest.raises(ps.PackError, match=r"a: its name equals that of an earlier record"):
        ps.pack(({"__key__": key, "x": 1} for key in "abca"), tmp_path / "d.lmdb")


@pytest.mark.parametrize(
    ("images", "mode", "form"),
    [
        ("png", "RGB", "PNG"),
        ("png", "P", "PNG"),
        ("png", "I;16", "PNG"),
        ("jpeg", "RGB", "JPEG"),
        ("jpeg:60", "L", "JPEG"),
    ],
)
def test_pictures_are_stored_as_asked(images: str, mode: str, form: str, tmp_path: Path) -> None:
    """As PNG without loss, or as JPEG of the quality that is asked for."""
    pixels = np.random.default_rng(0).integers(0, 255, (12, 10, 3), np.uint8)
    given = Image.new(mode, (10, 12), 300) if mode == "I;16" else Image.fromarray(pixels).convert(mode)

    ps.pack(iter([given]), tmp_path / "p.lmdb", images=images)

    with ps.open(tmp_path / "p.lmdb") as store:
        stored = Image.open(io.BytesIO(store[0].fields["image"]))
        assert (stored.format, stored.size) == (form, (10, 12))
        if form == "PNG":
            assert np.array_equal(np.asarray(stored), np.asarray(given))


def test_masks_of_arrays_are_png_without_loss(tmp_path: Path) -> None:
    """Arrays of numbers up to 65535 become single-channel PNGs; others are refused by name."""
    masks: list[Any] = [np.arange(20, dtype=np.int64).reshape(4, 5), np.full((4, 5), 40000, np.int32)]

    ps.pack(({"mask": mask} for mask in masks), tmp_path / "p.lmdb", schema={"mask": "mask"})

    with ps.open(tmp_path / "p.lmdb") as store:
        for record, mask in zip(store, masks, strict=True):
            stored = record.fields["mask"]
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(stored))), mask)
    with pytest.raises(ps.PackError, match="field 'mask' must be mask by the schema"):
        ps.pack(iter([{"mask": np.full((4, 5), -1)}]), tmp_path / "q.lmdb", schema={"mask": "mask"})


def test_paths_are_read(tmp_path: Path) -> None:
    """A ``Path`` is the file; a text is one where the schema says that the field is an image."""
    (tmp_path / "a.jpg").write_bytes(picture(0))
    (tmp_path / "a.wav").write_bytes(b"RIFF")

    ps.pack(iter([{"image": Path("a.jpg"), "sound": Path("a.wav")}]), tmp_path / "p.lmdb", root=tmp_path)
    ps.pack(iter([{"x": "a.jpg"}]), tmp_path / "q.lmdb", root=tmp_path, schema={"x": "image"})

    with ps.open(tmp_path / "p.lmdb") as store, ps.open(tmp_path / "q.lmdb") as other:
        assert bytes(store[0].fields["image"]) == bytes(other[0].fields["x"]) == picture(0)
        assert bytes(store[0].fields["sound"]) == b"RIFF"
    with pytest.raises(ps.PackError, match=r"0: field 'x': the file cannot be read: .*b\.jpg: No such file"):
        ps.pack(iter([{"x": "b.jpg"}]), tmp_path / "r.lmdb", root=tmp_path, schema={"x": "image"})


class Stream(torch.utils.data.IterableDataset[Any]):
    """An iterable dataset of torch's."""

    def __iter__(self) -> Iterator[Any]:
        return iter([(picture(number), number) for number in range(7)])


def test_iterable_datasets_and_rows_of_batches_are_records(tmp_path: Path) -> None:
    """Of a loader, each row of a batch is a record; without a batch size, each sample."""
    columns = torch.utils.data.TensorDataset(torch.arange(10).view(5, 2), torch.arange(5))

    ps.pack(Stream(), tmp_path / "a.lmdb")
    ps.pack(torch.utils.data.DataLoader(columns, batch_size=2), tmp_path / "b.lmdb", names=("x", "label"))
    ps.pack(torch.utils.data.DataLoader(columns, batch_size=None), tmp_path / "c.lmdb", names=("x", "label"))

    with ps.open(tmp_path / "a.lmdb") as store:
        assert store.column("label").tolist() == list(range(7))
    for name in ("b", "c"):
        with ps.open(tmp_path / f"{name}.lmdb") as store:
            assert kinds(store) == {"x": "int64[2]", "label": "label"}
            assert [record.fields["x"].tolist() for record in store] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def commit_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit every three records."""
    real, limits = LmdbWriter.__init__, CommitLimits(records=3)
    monkeypatch.setattr(LmdbWriter, "__init__", lambda self, *a, **k: real(self, *a, **{**k, "limits": limits}))


def stop(at: PackProgress) -> None:
    """Interrupt in the middle."""
    if at.done >= 16:
        raise KeyboardInterrupt


def test_an_iterator_with_an_id_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples that are committed are consumed, not converted again; the pack has the same bytes in the end."""
    commit_often(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        ps.pack(samples(40), tmp_path / "p.lmdb", source_id="numbers", progress=stop)

    report = ps.pack(samples(40), tmp_path / "p.lmdb", source_id="numbers")
    whole = ps.pack(samples(40), tmp_path / "whole.lmdb", source_id="numbers")
    again = ps.pack(samples(40), tmp_path / "p.lmdb", source_id="numbers")

    assert 0 < report.resumed < 40
    assert (report.records, whole.records, again.reused) == (40, 40, True)
    assert (tmp_path / "p.lmdb/data.mdb").read_bytes() == (tmp_path / "whole.lmdb/data.mdb").read_bytes()


def test_an_iterator_of_another_order_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken promise is found by the last committed record; what was written stays."""
    commit_often(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        ps.pack(samples(40), tmp_path / "p.lmdb", source_id="numbers", progress=stop)

    with pytest.raises(ps.StoreError, match=r"its last record is not record '\d+' of the source"):
        ps.pack(reversed(list(samples(40))), tmp_path / "p.lmdb", source_id="numbers")
    assert ps.pack(samples(40), tmp_path / "p.lmdb", source_id="numbers").resumed


def test_an_iterator_without_an_id_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted pack of it is removed; after a kill, the error says why it cannot be resumed."""
    commit_often(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        ps.pack(samples(40), tmp_path / "p.lmdb", progress=stop)
    assert not (tmp_path / "p.lmdb").exists()

    monkeypatch.setattr(LmdbWriter, "discard", LmdbWriter.close)  # a process that is killed removes nothing
    with pytest.raises(KeyboardInterrupt):
        ps.pack(samples(40), tmp_path / "p.lmdb", progress=stop)
    limit = itertools.islice(itertools.count(), 3)
    with pytest.raises(ps.StoreError, match=r"unfinished pack.*source_id=\.\.\.; without it, a pack is not resumed"):
        ps.pack(({"x": number} for number in limit), tmp_path / "p.lmdb")
    assert ps.pack(({"x": number} for number in range(3)), tmp_path / "p.lmdb", overwrite=True).records == 3


def test_a_damaged_image_is_an_error_of_its_record(tmp_path: Path) -> None:
    """Most values are images, so the field is: the damaged one is listed, and left out if that is said."""
    rows = [{"image": picture(number) if number != 2 else b"damaged"} for number in range(5)]

    with pytest.raises(ps.PackError, match=r"(?s)1 of the source's files cannot be packed.*  2: "):
        ps.pack(rows, tmp_path / "a.lmdb")
    report = ps.pack(rows, tmp_path / "a.lmdb", on_error="skip")

    assert report.schema is not None
    assert report.schema["image"].kind == "image"
    assert [entry.key for entry in report.skipped] == ["2"]
