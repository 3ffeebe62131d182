"""Which column is the image, the label, the key, and what kind a value is: compared with what is written down.

`golden_fields.json` has the answers of every kind of container to the same logical cases, `golden_foreign.json` those
of the containers that other libraries wrote, and `GOLDEN.md` the table of cases and kinds. A change of an answer is
seen here, and is wanted or not; ``python -m tests.foreign.golden`` in the root of the repository writes the files anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.foreign import golden
from tests.foreign.golden_cases import CASES
from tests.foreign.golden_kinds import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_columns_become_the_fields_that_are_written_down(kind: str, tmp_path: Path) -> None:
    """Every case, written in a kind of container, gives the fields, the keys or the error that it gave before."""
    expected = {case: said[kind] for case, said in golden.load().items()}

    found = golden.ask_kind(kind, tmp_path / "cases")

    assert found == expected


def test_containers_of_other_libraries_have_the_fields_that_are_written_down(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Genuine containers give the fields, the keys or the error that they gave before, with and without options."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    expected = golden.load(golden.FOREIGN)

    found = golden.ask_foreign(data_dir / "foreign", tmp_path)

    assert found == {name: expected[name] for name in found}


def test_the_files_are_as_the_program_writes_them() -> None:
    """The answers have every case in order, and the summary is that of the answers."""
    answers = golden.load()

    assert answers.keys() == CASES.keys()
    assert golden.ANSWERS.read_text(encoding="utf-8") == golden.dump(answers)
    assert golden.SUMMARY.read_text(encoding="utf-8") == golden.render(answers)
