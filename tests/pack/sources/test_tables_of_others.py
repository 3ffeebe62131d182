"""Tables as other people and programs write them: without header, with words for gaps, blanks and foreign paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps
from penstock.pack.pipeline.run import list_skipped
from penstock.stores.mongo.joined_manifest import read_manifest
from penstock.stores.writing import Skipped
from tests.pack.images import picture
from tests.pack.sources.test_iterables import kinds


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four images, a text, and the current folder."""
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(picture(number, "PNG"))
    (tmp_path / "readme.txt").write_text("no image")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pack(source: Any, text: str | bytes | None = None, **options: Any) -> ps.PackReport:
    """Pack a source, or a table of this text, to p.lmdb."""
    if text is not None:
        Path(source).write_bytes(text if isinstance(text, bytes) else text.encode())
    return ps.pack(source, "p.lmdb", **options)


def column(name: str) -> list[Any]:
    """The values of a field of p.lmdb."""
    with ps.open("p.lmdb") as store:
        return [record.fields[name] for record in store]


def keys() -> list[str]:
    """The keys of p.lmdb."""
    with ps.open("p.lmdb") as store:
        return list(store.keys())


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("t.csv", "file,label\n0.png,a\nreadme.txt,b\n1.png,a\n", "line 3: column 'file' has no path of an image"),
        ("t.jsonl", '{"path": "0.png"}\n{"path": "readme.txt"}\n{"path": "1.png"}\n', "line 2: column 'path'"),
        (
            "t.csv",
            "file,sound\n0.png,a.mp3\n1.png,a.mp3\n2.png,readme.txt\n",
            "line 4: column 'sound' has no path of a",
        ),
    ],
)
def test_a_cell_that_names_no_image_is_a_problem_of_its_row(name: str, text: str, where: str) -> None:
    """A column is of images if most cells are; the others are refused, or left out and listed."""
    Path("a.mp3").write_bytes(b"RIFF")
    with pytest.raises(ps.PackError, match=where):
        pack(name, text)

    report = pack(name, text, on_error="skip")

    assert report.records == 2
    assert report.schema is not None
    assert report.schema["image"].kind == "image"
    assert len(report.skipped) == 1
    assert where in report.skipped[0].reason


@pytest.mark.parametrize(
    "rows",
    [
        [{"file": f"{n}.png", "boxes": np.ones((n, 4))} for n in range(3)],
        [{"file": f"{n}.png", "mask": np.ones((5, 5), np.uint8)} for n in range(3)],
        [{"file": f"{n}.png", "boxes": [np.ones(4)]} for n in range(3)] + [{"file": "readme.txt", "boxes": []}],
    ],
)
def test_rows_with_arrays_beside_paths_are_a_table(rows: list[dict[str, Any]]) -> None:
    """Arrays that are no pictures do not make the paths texts."""
    report = pack(rows, on_error="skip")

    assert report.records == 3
    assert keys() == ["0.png", "1.png", "2.png"]
    assert [bytes(each) for each in column("image")] == [picture(n, "PNG") for n in range(3)]


@pytest.mark.parametrize("source", ["generator", "columns", "paths and texts"])
def test_a_text_called_as_an_image_is_its_path_in_samples(source: str) -> None:
    """Also a mask; texts of other names stay texts beside an image."""
    rows: list[dict[str, Any]] = [
        {"image": f"{n}.png", "mask": f"{n}.png", "other": "0.png", "v": np.ones(2)} for n in range(3)
    ]
    if source == "paths and texts":
        rows = [{**row, "image": Path(row["image"])} for row in rows]
    given: Any = (row for row in rows) if source == "generator" else rows
    if source == "columns":
        given = {name: [row[name] for row in rows] for name in rows[0]}

    pack(given)

    with ps.open("p.lmdb") as store:
        assert (kinds(store)["image"], kinds(store)["mask"], kinds(store)["other"]) == ("image", "mask", "text")
        assert bytes(store[2].fields["mask"]) == picture(2, "PNG")


@pytest.mark.parametrize(
    "source",
    [
        [("0.png", 1), ("1.png", 2)],
        {"path": ["0.png", "1.png"], "v": np.ones((2, 3))},
        "file,note\n0.png,a\nb,c\nd,e\n",
        "file,note\n0.dcm,a\n1.dcm,c\n",
    ],
)
def test_a_pack_without_images_of_a_source_that_names_some_is_said(source: Any) -> None:
    """With what to write; nothing is said where the kinds are given."""
    given, text = ("t.csv", source) if isinstance(source, str) else (source, None)

    with pytest.warns(UserWarning, match="no field is an image, and field '(0|path|file)' has names of images") as said:
        report = pack(given, text)

    assert said[0].filename == __file__
    assert report.schema is not None
    name = next(iter(report.schema.fields))
    ps.pack(given, "q.lmdb", schema={name: "text"})


@pytest.mark.parametrize(
    ("name", "text", "options", "fields"),
    [
        ("t.csv", "0.png,3\n1.png,4\n2.png,5\n", {}, {"image": "image", "1": "int"}),
        ("t.tsv", "0.png\t3\n1.png\t4\n2.png\t5\n", {"columns": {"label": "1"}}, {"image": "image", "label": "label"}),
        ("t.csv", "sep=;\n0.png;3\n1.png;3\n2.png;3\n", {}, {"image": "image", "1": "int"}),
        ("t.csv", "x;readme.txt\ny;readme.txt\nz;readme.txt\n", {}, {"0": "text", "1": "text"}),
        ("t.csv", "1,1,0.5\n2,2,3\n3,4,5\n", {}, {"0": "int", "1": "int", "2": "float"}),
        ("t.csv", "1,,0.5\n2,2,3\n3,4,5\n", {}, {"0": "int", "1": "int", "2": "float"}),
    ],
)
def test_a_first_line_of_values_is_a_row(name: str, text: str, options: Any, fields: dict[str, str]) -> None:
    """Columns have numbers for names then, which is said."""
    with pytest.warns(UserWarning, match="its first line has values and is a row") as said:
        report = pack(name, text, **options)

    assert said[0].filename == __file__
    assert report.records == 3
    assert report.schema is not None
    assert {name: field.kind for name, field in report.schema.fields.items() if field.kind} | fields == {
        name: field.kind for name, field in report.schema.fields.items()
    }


@pytest.mark.parametrize("header", ["0,1", "png,jpg", "x.y,2019", "0.png file,label", "NA,-"])
def test_a_header_that_looks_like_values_stays_one(header: str) -> None:
    """The numbers that pandas gives to columns without names, and words with digits and dots."""
    assert pack("t.csv", f"{header}\n5,6\n").records == 1


@pytest.mark.parametrize("word", ["NaN", "nan", "NA", "N/A", "NULL", "None", "<NA>", "-", " "])
@pytest.mark.parametrize("form", ["csv", "jsonl", "list"])
def test_words_for_missing_values_are_gaps_among_numbers(word: str, form: str) -> None:
    """And values among texts; what was read so is said, with the first line."""
    rows = [(1, "x"), (word, word), (3, "y")]
    lines = {
        "csv": "n,score,label,note\n" + "".join(f"{n},{n},{n},{note}\n" for n, note in rows),
        "jsonl": "".join(f'{{"n": {n}, "score": {n}, "label": {n}, "note": "{note}"}}\n' for n, note in rows).replace(
            f": {word},", f': "{word}",'
        ),
    }
    source: Any = [{"file": f"{at}.png", "n": n, "score": n, "label": n, "note": x} for at, (n, x) in enumerate(rows)]

    with pytest.warns(UserWarning, match=r"column 'n': '.*' is read as a missing value \(1 row, the first is") as said:
        pack(source) if form == "list" else pack(f"t.{form}", lines[form])

    assert said[0].filename == __file__
    assert "note" not in str(said[0].message)
    assert column("n") == column("label") == [1, None, 3]
    assert column("note") == ["x", word, "y"]


def test_missing_values_of_json_and_lists_are_gaps() -> None:
    """JSON's NaN, and a word in a column of lists."""
    with pytest.warns(UserWarning, match="column 'v': 'null' is read as a missing value"):
        pack("t.jsonl", '{"s": NaN, "v": [1, 2]}\n{"s": 2, "v": "null"}\n', schema={"v": "int64[*]"})

    assert column("s") == [None, 2]
    assert [None if each is None else each.tolist() for each in column("v")] == [[1, 2], None]
    with pytest.warns(UserWarning, match="column 'd': 'NaN' is read as a missing value"):
        pack("t.csv", 'd,n\n"{""a"": 1}",1\nNaN,2\n', overwrite=True)
    assert column("d") == [{"a": 1}, None]


@pytest.mark.parametrize("form", ["csv", "list", "given"])
def test_blanks_around_names_of_classes_are_no_part_of_them(form: str) -> None:
    """That is said; names that the caller gave are found as well."""
    rows = [{"file": f"{n}.png", "label": label} for n, label in enumerate(("bird", "bird ", " cat"))]
    text = "file, label \n" + "".join(f"{row['file']},{row['label']}\n" for row in rows)
    options = {"classes": ["cat", "bird"]} if form == "given" else {}
    with pytest.warns(UserWarning, match="blanks around names of classes are no part of them, such as ' cat'"):
        pack(rows) if form == "list" else pack("t.csv", text, **options)

    with ps.open("p.lmdb") as store:
        classes = store.schema["label"].classes
    assert [classes[number] for number in column("label")] == ["bird", "bird", "cat"]


@pytest.mark.parametrize(("one", "other"), [("Cat", "cat"), ("cafe\u0301", "caf\u00e9"), ("polar  bear", "polar bear")])
def test_classes_that_differ_in_spelling_are_said(one: str, other: str) -> None:
    """They stay two; letters, and classes that were given, are what is meant."""
    with pytest.warns(UserWarning, match=f"{one!r} and {other!r} are two classes that differ only in"):
        report = pack("t.csv", f"file,label\n0.png,{one}\n1.png,{other}\n")

    assert report.schema is not None
    assert report.schema["label"].classes == (one, other)
    pack("t.csv", "file,label\n0.png,a\n1.png,A\n", overwrite=True)
    pack("t.csv", f"file,label\n0.png,{one}\n1.png,{other}\n", classes=[other, one], overwrite=True)


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("./0.png", "0.png"),
        (".\\0.png", "0.png"),
        (" 0.png ", "0.png"),
        ("0.PNG", "0.png"),
        ("C:\\data\\faces\\0.png", "0.png"),
        ("/another/machine/0.png", "0.png"),
        ("sub\\1.png", "sub/1.png"),
        ("D:/x/sub/1.png", "sub/1.png"),
        ("..\\here\\0.png", "../here/0.png"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "list"])
def test_paths_of_other_systems_are_found(path: str, key: str, form: str, tmp_path: Path) -> None:
    """As annotations find them; the key of a record is the path of the file."""
    for name in ("here/0.png", "sub/1.png"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(picture(7, "PNG"))
    Path("sub/2.png").write_bytes(picture(2, "PNG"))
    root = "sub" if key.startswith("..") else "."

    pack([{"file": path}, {"file": "2.png"}], root=root) if form == "list" else pack(
        "t.csv", f"file,n\n{path},1\n2.png,2\n", root=root
    )

    assert keys() == [key, "2.png"]
    assert bytes(column("image")[0]) == Path(root, key).read_bytes()


def test_a_parquet_file_of_paths_beside_other_structs_is_a_table() -> None:
    """A struct with bytes is an image; others are JSON, and the first row may name no image."""
    table = pa.table({"file": ["readme.txt", "0.png", "1.png"], "more": [{"a": 1}] * 3})
    pa.parquet.write_table(table, "t.parquet")

    report = pack("t.parquet", on_error="skip")

    assert keys() == ["0.png", "1.png"]
    assert report.schema is not None
    assert report.schema["more"].kind == "json"


def test_a_structured_array_is_columns() -> None:
    """Not a list for each row."""
    report = pack(np.array([("0.png", 1), ("1.png", 2)], dtype=[("image", "U8"), ("n", "i4")]))

    assert report.schema is not None
    assert report.schema["image"].kind == "image"
    assert column("n") == [1, 2]


def test_one_file_under_two_spellings_is_one_record() -> None:
    """The second is listed with the line of the first."""
    report = pack("t.csv", "file,n\n0.png,1\n.\\0.png,2\n1.png,3\n", on_error="skip")

    assert (report.records, [entry.key for entry in report.skipped]) == (2, ["0.png"])
    assert "line 3: line 2 has the same file" in report.skipped[0].reason


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.json", "t.jsonl"])
def test_tables_with_a_byte_order_mark_are_read(name: str, encoding: str) -> None:
    """Excel's "Unicode text" is UTF-16."""
    texts = {
        ".csv": "file,label\n0.png,é\n",
        ".tsv": "file\tlabel\n0.png\té\n",
        ".json": '[{"file": "0.png", "label": "é"}]',
    }
    text = texts.get(Path(name).suffix, '{"file": "0.png", "label": "é"}\n')

    pack(name, f"{'' if encoding.endswith(('-sig', '16')) else chr(0xFEFF)}{text}".encode(encoding))

    with ps.open("p.lmdb") as store:
        assert store.schema["label"].classes == ("é",)


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("latin-1", "must be UTF-8: .* cp1252 or latin-1"),
        ("utf-16-le", "UTF-16 without a byte order mark"),
        ("utf-32", "."),
    ],
)
def test_other_encodings_are_refused_by_name(encoding: str, words: str) -> None:
    """With what to do."""
    text = "file,label\n0.png,é\n" if encoding == "latin-1" else "file,label\n0.png,a\n"
    with pytest.raises(ps.PackError, match=words):
        pack("t.csv", text.encode(encoding))


def test_five_lines_of_the_same_problem_are_shown() -> None:
    """Then their number; other problems are shown besides."""
    lines = "".join(f"none{n}.png,1\n" for n in range(30)) + "https://a/b.png,1\n0.png,1\n"

    with pytest.raises(ps.PackError, match="31 of the source's files") as caught:
        pack("t.csv", f"file,n\n{lines}")

    shown = [line for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert len(shown) == 7
    assert shown[5].startswith("  ... and 25 more: line ...: there is no file ...; root=")
    assert "https://a/b.png is an address" in shown[6]


def test_different_problems_are_not_counted_as_one() -> None:
    """Names and numbers may differ, words not."""
    entries = [Skipped(f"{n}.png", f"line {n}: {'empty' if n % 2 else 'truncated'}") for n in range(8)]

    assert len(list_skipped(entries).splitlines()) == 8


@pytest.mark.parametrize("key", ["index", None])
def test_a_damaged_image_of_a_table_is_named_by_path_and_line(key: str | None) -> None:
    """Whatever names the records."""
    Path("2.png").write_bytes(b"damaged")

    report = pack("t.csv", "file,n\n0.png,1\n2.png,1\n", key=key, on_error="skip")

    assert "line 3" in report.skipped[0].reason
    assert "2.png" in "".join(report.skipped[0])

    report = pack("t.csv", "file,mask,n\n0.png,1.png,1\n1.png,,1\n", key=key, on_error="skip", overwrite=True)

    assert report.skipped[0].reason.endswith("it has no path in column 'mask'")
    assert "1.png" in "".join(report.skipped[0])


def test_a_joined_manifest_reads_gaps_and_classes_as_a_packed_table_does(tmp_path: Path) -> None:
    """Words for missing values among numbers, blanks around classes."""
    Path("t.csv").write_text("name,n,s,label\na,1,NaN,cat\nb,NA,0.5,cat \n")

    columns = read_manifest(tmp_path / "t.csv", "name").columns

    assert [columns["n"].get(row) for row in (0, 1)] == [1, None]
    assert [columns["s"].get(row) for row in (0, 1)] == [None, 0.5]
    assert columns["label"].field.classes == ("cat",)
