"""Tables that are damaged, or have rows of hostile lengths: an error names the line and the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import StoreFormatError
from penstock.stores.common import table_files
from penstock.stores.common.table_files import Table


def read(path: Path, text: str) -> list[tuple[int, dict[str, object]]]:
    """Lines and values of the rows of a table with this text."""
    path.write_text(text)
    return [(row.line, dict(row.values)) for row in Table(path).rows()]


LONG = "1,2\n" * 40_000


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('a,b\n1,2\n3,"' + LONG, 3, "a value has more than 131,072 characters, as of a quote that is not closed"),
        ('a,"b\n' + LONG, 1, "a value has more than 131,072 characters, as of a quote that is not closed"),
        ('sep=,\na,b\n1,"2\n3"\n4,"' + LONG, 5, "a value has more than 131,072 characters"),
        ('a,b\n1,2\n\n3,"4\n5,6\n', 4, "a quote is not closed"),
        ('a,b\n1,2\n3,"4"5\n', 3, "',' expected after '\"'"),
        ("a,b\n1,2\n3," + "4" * 200_000, 3, "a value has more than 131,072 characters"),
    ],
)
def test_a_quote_that_is_not_closed_is_named_with_the_line_of_its_row(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    """The row may end, or pass the limit of a value, a million lines later."""
    with pytest.raises(StoreFormatError) as caught:
        read(tmp_path / "t.csv", text)

    assert f"the table t.csv cannot be parsed: the row that begins at line {line}: {reason}" in str(caught.value)


def test_lines_are_counted_where_values_have_ends_of_lines(tmp_path: Path) -> None:
    """The line of a row is that where it ends."""
    rows = read(tmp_path / "t.csv", 'sep=;\na;b\n1;"2\n3"\n\n4;5\n')

    assert rows == [(4, {"a": "1", "b": "2\n3"}), (6, {"a": "4", "b": "5"})]


@pytest.mark.parametrize("row", ["1," * 20, '"1\n",' * 10 + "2"])
def test_the_length_of_a_row_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    """Also where a row has many lines."""
    monkeypatch.setattr(table_files, "_MAX_CELLS_LENGTH", 40)

    assert len(read(tmp_path / "t.csv", "a,b\n" + "1,2\n" * 100)) == 100
    with pytest.raises(StoreFormatError, match="begins at line 3: a row must have less than 40 characters"):
        read(tmp_path / "t.csv", f"a,b\n1,2\n{row}\n")


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_rows_with_columns_of_their_own_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Each record would have a missing value for the columns of all others."""
    monkeypatch.setattr(table_files, "_FEW_COLUMNS", 4)
    monkeypatch.setattr(table_files, "_MAX_ABSENT", 20)

    def write(columns: list[int]) -> str:
        rows = [f'{{"k{column}": 1}}' for column in columns]
        return f"[{','.join(rows)}]" if form == "json" else "\n".join(rows)

    assert len(read(tmp_path / f"t.{form}", write([0, 1, 2, 3] * 20))) == 80
    assert len(read(tmp_path / f"t.{form}", write(list(range(5))))) == 5
    with pytest.raises(StoreFormatError, match=r"the first 6 have 6, and lack more than 20 values together"):
        read(tmp_path / f"t.{form}", write(list(range(6))))


def test_very_many_equal_columns_are_named_in_part(tmp_path: Path) -> None:
    """An error stays short."""
    with pytest.raises(StoreFormatError, match="must have different names") as caught:
        read(tmp_path / "t.csv", ",".join(["a"] * 10_000) + "\n")

    assert len(str(caught.value)) < 1000
