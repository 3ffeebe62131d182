"""What the tests of formats of text share: small images, what was expected of a real set, and damage to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import strategies as st
from PIL import Image

from penstock.annotations import Annotations, read
from penstock.errors import AnnotationError

__all__ = [
    "HOSTILE",
    "SIZE",
    "Damage",
    "apply_damage",
    "check_expected",
    "check_token_damage",
    "damage",
    "find_set",
    "put",
    "put_image",
    "read_damaged",
    "read_expected",
]

SIZE: Final = (40, 20)
"""Width and height of the images."""
HOSTILE: Final[tuple[bytes, ...]] = (
    b"",
    b"-1",
    b"nan",
    b"inf",
    b"1e999",
    b"-1e38",
    b"9" * 5000,
    b"0.5",
    b"x",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xf0\x9f\x98\x80",
    b"../../../etc/passwd",
    b"/etc/hosts",
    b"C:\\pictures\\a.jpg",
    b"x" * 300,
    b"\r\n",
    b"\t",
    b",",
    b" ",
    b'"',
    b"#",
    b"[",
    b"{",
    b"&a *a",
    b"*b",
    b"!!python/object/apply:os.system [x]",
    b"\\ud800",
    b": ",
    b"- ",
)

Damage = tuple[str, float, bytes]


def find_set(data_dir: Path, name: str) -> Path:
    """The folder of a set that the genuine tools wrote; skips where it is absent."""
    folder = data_dir / "foreign" / f"annotations-{name}"
    if not folder.is_dir():
        pytest.skip(f"no set at {folder}")
    return folder


def damage() -> st.SearchStrategy[list[Damage]]:
    """One to three changes of a file: what is done, where (a part of its length), and with which bytes."""
    texts = st.one_of(st.sampled_from(HOSTILE), st.binary(max_size=6))
    kinds = st.sampled_from(("replace", "insert", "cut", "flip", "delete", "repeat"))
    return st.lists(st.tuples(kinds, st.floats(0, 1, exclude_max=True), texts), min_size=1, max_size=3)


def apply_damage(content: bytes, changes: list[Damage]) -> bytes:
    """The content of a file, changed."""
    for kind, part, text in changes:
        place = int(part * len(content))
        if kind == "replace":
            content = content[:place] + text + content[place + len(text) :]
        elif kind == "insert":
            content = content[:place] + text + content[place:]
        elif kind == "cut":
            content = content[:place]
        elif kind == "flip":
            content = content[:place] + bytes(each ^ 0x10 for each in content[place : place + 1]) + content[place + 1 :]
        elif kind == "delete":
            content = content[:place] + content[place + 1 + len(text) :]
        else:
            content = content[:place] + content[max(place - 40, 0) :]
    return content


def put(path: Path, content: str | bytes) -> Path:
    """Write a file, in UTF-8 where a text is given, without a change of line ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def put_image(path: Path, size: tuple[int, int] = SIZE) -> Path:
    """Write a gray picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (90, 120, 60)).save(path)
    return path


def read_damaged(source: Any, name: str, **options: Any) -> Annotations | None:
    """What is read of a damaged set, whose records keep the contract; None for an AnnotationError."""
    try:
        found = read(source, name, on_error="skip", **options)
    except AnnotationError:
        return None
    for record in found:
        assert record["boxes"].dtype == np.float32
        assert record["boxes"].shape == (len(record["labels"]), 4)
        assert np.isfinite(record["boxes"]).all()
        assert (record["boxes"][:, 2:] > record["boxes"][:, :2]).all()
        assert all(0 <= label < len(found.classes) for label in record["labels"])
        assert (found.root / record["image"]).is_relative_to(found.root)
        assert ".." not in Path(record["image"]).parts
    if found.problems:
        try:
            read(source, name, on_error="raise", **options)
        except AnnotationError:
            return found
        raise AssertionError("problems must be raised")
    return found


def check_token_damage(source: Any, name: str, path: Path, objects: int, where: tuple[int, int, bytes]) -> None:
    """Replace one word of one line of a file: each object that is missing then is one that a problem names.

    ``where`` is a line, a word of it, and the other word.
    """
    content = path.read_bytes()
    lines = content.split(b"\n")
    row, column, text = where
    words = lines[row].replace(b",", b" , ").split()
    words[column % len(words)] = text
    lines[row] = b" ".join(words).replace(b" , ", b",")
    path.write_bytes(b"\n".join(lines))
    try:
        found = read_damaged(source, name)
    finally:
        path.write_bytes(content)
    if found is not None:
        held = sum(len(record["labels"]) for record in found)
        left_out = [problem for problem in found.problems if problem.effect.endswith("left out")]
        assert held == objects or left_out, (held, objects)
        is_other_text = text.startswith(b"\xff\xfe")  # the mark of UTF-16 makes one line of the file
        assert (
            held >= objects - len(left_out)
            or is_other_text
            or any(problem.effect == "image left out" for problem in left_out)
        )


def check_expected(found: Annotations, expected: dict[str, Any]) -> None:
    """Compare all records with what the writer of a real set says of them."""
    assert found.problems == ()
    assert len(found) == expected["count"]
    for record, entry in zip(found, expected["records"], strict=True):
        assert record["image"] == entry["image"]
        assert (record["width"], record["height"]) == (entry["width"], entry["height"])
        np.testing.assert_allclose(record["boxes"], np.array(entry["boxes"]).reshape(-1, 4), atol=1e-3)
        assert [found.classes[label] for label in record["labels"]] == entry["classes"]


def read_expected(folder: Path) -> dict[str, Any]:
    """The ``expected.json`` of a real set."""
    content: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return content
