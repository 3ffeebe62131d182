"""Picked records: bits from the page become keys, a list to leave out, and lines to paste."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.pack.images import make_photos


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of twelve pictures."""
    return make_photos(tmp_path / "photos")


def bits(total: int, *picked: int) -> bytes:
    """The body of a request."""
    chosen = np.zeros(total, bool)
    chosen[list(picked)] = True
    return np.packbits(chosen, bitorder="little").tobytes()


def export(asker: Any, form: str, *picked: int, total: int = 12) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of an export."""
    status, headers, body = asker.request(f"api/picks/export?format={form}", None, "POST", bits(total, *picked))
    return status, headers, body.decode()


def test_exported_keys_are_those_of_the_picked_records(photos: Path, ask: Callable[..., Any], tmp_path: Path) -> None:
    """The file selects the same records in ``find_keys`` and in ``pack``."""
    status, headers, text = export(ask(photos), "keys", 9, 2)
    (tmp_path / "keys.txt").write_text(text)

    assert (status, headers["content-disposition"]) == (200, 'attachment; filename="keys.txt"')
    with ps.open(photos) as store:
        assert ps.find_keys(store, tmp_path / "keys.txt").tolist() == [2, 9]
    assert ps.pack(photos, tmp_path / "copy.lmdb", keys=tmp_path / "keys.txt").records == 2


def test_a_quarantine_list_leaves_out_the_picked_records(photos: Path, ask: Callable[..., Any], tmp_path: Path) -> None:
    """Each line names store, key, index and reason."""
    _, headers, text = export(ask(photos), "quarantine", 0, 11)
    (tmp_path / "quarantine.jsonl").write_text(text)

    assert headers["content-disposition"].endswith('"quarantine.jsonl"')
    assert [sorted(json.loads(line)) for line in text.splitlines()] == [["index", "key", "reason", "store"]] * 2
    with ps.open(photos) as store:
        assert ps.find_keys(store, tmp_path / "quarantine.jsonl", exclude=True).tolist() == list(range(1, 11))


@pytest.mark.parametrize(("picked", "expected"), [((3, 4, 5), [3, 4, 5]), ((1, 7), [1, 7])])
def test_the_line_of_python_makes_the_subset(
    photos: Path, ask: Callable[..., Any], picked: tuple[int, ...], expected: list[int]
) -> None:
    """It runs as it is pasted, where ``dataset`` is the whole store."""
    _, _, text = export(ask(photos), "python", *picked)
    names: dict[str, Any] = {"ps": ps, "dataset": range(100)}
    exec(text, names)  # the text is what the viewer wrote

    assert list(names["subset"]) == expected


def test_the_command_packs_what_is_picked(photos: Path, ask: Callable[..., Any]) -> None:
    """It names the store as ``penstock.open`` takes it."""
    words = shlex.split(export(ask(photos), "command", 1)[2])

    assert (words[:2], words[3:]) == (["penstock", "pack"], ["picked.lmdb", "--keys", "keys.txt"])
    with ps.open(words[2]) as store:
        assert len(store) == 12


def test_all_that_match_are_sent_as_bits(photos: Path, ask: Callable[..., Any]) -> None:
    """Without a filter, one bit for each record."""
    status, _, body = ask(photos).request("api/picks/matching")

    assert (status, body) == (200, bits(12, *range(12)))


@pytest.mark.parametrize(
    ("form", "body", "sentence"),
    [
        ("keys", b"\0\0", "no record is picked"),
        ("keys", b"\1", "the body must have a bit for each record, 2 bytes, got 1"),
        ("keys", b"\1" * 100_000, "the body must have a bit for each record"),
        ("zip", b"\1\0", "format must be one of keys, quarantine, python, command, got 'zip'"),
    ],
)
def test_wrong_requests(photos: Path, ask: Callable[..., Any], form: str, body: bytes, sentence: str) -> None:
    """400 and a sentence."""
    status, _, text = ask(photos).request(f"api/picks/export?format={form}", None, "POST", body)

    assert status == 400
    assert sentence in json.loads(text)["error"]


def test_keys_that_are_no_lines_are_refused(tmp_path: Path, ask: Callable[..., Any]) -> None:
    """A text file would name other records; the quarantine list has them whole."""
    samples = [{"value": 1, "__key__": "one\nline"}, {"value": 2, "__key__": "two"}]
    ps.pack(samples, tmp_path / "odd.lmdb")
    asker = ask(tmp_path / "odd.lmdb")

    status, _, text = export(asker, "keys", 0, total=2)
    assert (status, "export a .jsonl file instead" in text) == (400, True)
    assert json.loads(export(asker, "quarantine", 0, total=2)[2])["key"] == "one\nline"
