"""A store of every kind opens: its session, rows, thumbnails, pictures, annotations and details."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.testing import KEYS, write_photos
from tests.conformance.store_makers import MAKERS
from tests.viewer.asking import App


def list_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Sizes and times of change of all files."""
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_store_of_each_kind_is_shown(name: str, tmp_path: Path) -> None:
    """Five records, their keys, and pictures with the right pixels; no file is changed or made."""
    maker = MAKERS[name]
    if maker.needs:
        pytest.importorskip(maker.needs)
    contents = write_photos(tmp_path / "photos")
    with ps.open(maker.make(tmp_path), **maker.options) as store:
        before = list_files(tmp_path)
        app = App(store)
        try:
            session, rows = app.ask("api/session").json, app.ask("api/rows").json["rows"]
            shown = app.ask("api/picture/2", "exact=1")
            thumbnail, layers = app.ask("api/thumb/4", "side=32"), app.ask("api/layers", "indices=0,4").json
            record = app.ask("api/record/3").json
        finally:
            app.close()
        assert list_files(tmp_path) == before

    keys = [str(number) for number in range(len(KEYS))] if maker.keys is None else list(maker.keys)
    assert session["total"] == len(KEYS)
    assert session["image"] == "image"
    assert [row["key"] for row in rows] == keys
    assert [row["label"] for row in rows] == [0, 0, 1, 1, 1]
    expected = (maker.decoded or ps.decode)(contents[KEYS[2]])
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(shown.body)).convert("RGB")), expected)
    assert thumbnail.headers["content-type"] == "image/webp"
    assert layers["4"]["layers"] == []
    assert record["key"] == keys[3]
    assert {field["name"] for field in record["fields"]} >= {"image", "label"}
    assert record["picture"]["width"] > 0
