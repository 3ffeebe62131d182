"""What a pack was made from, as text, as a note, and how two origins differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StoreError
from penstock.sample import Field, Schema
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.stores.origin import ORIGIN_FILE, Origin, read_origin, write_origin
from tests.stores.lmdb_pack.packs import SCHEMA, SMALL_COMMITS, write

NOW = Origin("digest", {"check": "header", "transcode": "none"})
OTHER_CLASSES = Schema({"image": Field("image"), "label": Field("label", ("dog", "cat"))})
OTHER_FIELDS = Schema({"image": Field("image")})


@given(digest=st.text(max_size=20), options=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3))
def test_text_is_the_origin(digest: str, options: dict[str, str]) -> None:
    """An origin with options survives as text; text of no such form is a digest alone."""
    assert Origin.from_text(Origin(digest, {**options, "check": "header"}).to_text()) == Origin(
        digest, {**options, "check": "header"}
    )


@pytest.mark.parametrize("text", ["", "0123456789abcdef+baseline", "{", "[1]", '{"digest": 1}', '{"options": {}}', "7"])
def test_other_text_is_a_digest(text: str) -> None:
    """What an earlier version wrote, or somebody else, is a digest without options."""
    assert Origin.from_text(text) == Origin(text)


@pytest.mark.parametrize(
    ("held", "schema", "said"),
    [
        (Origin("digest", {"check": "decode", "transcode": "none"}), SCHEMA, "check='decode'"),
        (Origin("another", {"check": "header", "transcode": "baseline"}), OTHER_CLASSES, "transcode='baseline'"),
        (Origin("another", NOW.options), OTHER_CLASSES, "its classes are 'dog', 'cat', not 'cat', 'dog'"),
        (NOW, OTHER_FIELDS, "its fields are image, not image, label"),
        (Origin("another", NOW.options), SCHEMA, "its source was changed"),
        (Origin("digest"), SCHEMA, "another version of penstock"),
    ],
)
def test_the_first_difference_is_named(held: Origin, schema: Schema, said: str) -> None:
    """Options before classes before fields before the source: a source's digest differs where its classes do."""
    assert said in held.describe_difference(schema, NOW, SCHEMA)


def test_a_note_belongs_to_one_content(tmp_path: Path) -> None:
    """A note is read for the records that it was written for, and for no others."""
    write_origin(LmdbStore.locate(tmp_path), "content", NOW)

    assert read_origin(LmdbStore.locate(tmp_path), "content") == NOW
    assert read_origin(LmdbStore.locate(tmp_path), "another") is None
    (tmp_path / ORIGIN_FILE).unlink()
    assert read_origin(LmdbStore.locate(tmp_path), "content") is None


def test_a_pack_that_an_earlier_version_began_is_not_resumed(tmp_path: Path) -> None:
    """A pack whose options are not known is refused with what to do, and kept."""
    write(tmp_path / "p.lmdb", range(30), source="0123456789abcdef", limits=SMALL_COMMITS).close()

    with pytest.raises(StoreError, match=r"another version of penstock.*--overwrite"):
        LmdbWriter(str(tmp_path / "p.lmdb"), SCHEMA, NOW.to_text())

    write(tmp_path / "p.lmdb", range(40), source="0123456789abcdef", limits=SMALL_COMMITS).finish()
