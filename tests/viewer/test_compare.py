"""Two stores side by side: which records are there, which changed, and what differs in words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import penstock as ps
from penstock.viewer.compare.two_stores import pair_keys
from penstock.viewer.find.order import order_by_set
from tests.pack.images import make_photos, picture

CLASSES = ["cat", "dog"]


def make(path: Path, rows: dict[str, tuple[int, int, list[list[float]]]], classes: list[str] = CLASSES) -> Path:
    """A pack of records: key to the seed of the picture, the label, and boxes."""
    samples = [
        {"image": picture(seed), "label": label, "boxes": np.array(boxes, np.float32).reshape(-1, 4), "__key__": key}
        for key, (seed, label, boxes) in rows.items()
    ]
    ps.pack(samples, path, classes=classes, schema={"boxes": "boxes", "label": "label"}, index="none")
    return path


def finish(asker: Any) -> Any:
    """The summary when everything is compared."""
    deadline = time.monotonic() + 60
    while (found := asker.json("api/compare/summary"))["running"]:
        assert time.monotonic() < deadline, "not everything is compared"
    return found


@pytest.fixture
def compared(tmp_path: Path, ask: Callable[..., Any]) -> Any:
    """Six records before, and six after."""
    box = [1.0, 2.0, 10.0, 12.0]
    before = {
        "same": (1, 0, [box]), "gone": (2, 0, []), "label": (3, 0, []), "moved": (4, 1, [box]), "bytes": (5, 1, []),
        "both": (6, 1, [box]),
    }  # fmt: skip
    after = {
        "both": (60, 0, [box, box]), "new": (7, 0, []), "bytes": (50, 1, []), "same": (1, 0, [box]),
        "moved": (4, 1, [[1.0, 2.0, 13.0, 12.0]]), "label": (3, 1, []),
    }  # fmt: skip
    return ask(make(tmp_path / "before.lmdb", before), compare=make(tmp_path / "after.lmdb", after))


def list_keys(asker: Any, kind: str, key: str = "") -> list[str]:
    """Keys of a kind."""
    return [row["key"] for row in asker.json(f"api/compare/list?kind={kind}&key={quote(key)}")["rows"]]


def test_each_record_is_of_its_kind(compared: Any) -> None:
    """A record whose image and label differ is changed and relabelled; the order of the stores does not matter."""
    summary = finish(compared)

    assert summary["error"] == ""
    assert summary["counts"] == {
        "changed": 2, "relabelled": 3, "removed": 1, "added": 1, "unreadable": 0, "unchanged": 1
    }  # fmt: skip
    found = {kind: list_keys(compared, kind) for kind in summary["counts"]}
    assert found == {
        "changed": ["bytes", "both"], "relabelled": ["label", "moved", "both"], "removed": ["gone"], "added": ["new"],
        "unreadable": [], "unchanged": ["same"],
    }  # fmt: skip
    assert list_keys(compared, "relabelled", "o") == ["moved", "both"]
    assert order_by_set(compared.viewer.session, "relabelled", None).tolist() == [2, 3, 5]


def test_what_differs_is_said_in_words(compared: Any) -> None:
    """Fields that differ are first, each with its values and a sentence."""
    finish(compared)

    def words(kind: str, key: str) -> dict[str, tuple[str, str, str]]:
        row = compared.json(f"api/compare/list?kind={kind}&key={key}")["rows"][0]
        fields = compared.json(f"api/compare/pair?before={row['before']}&after={row['after']}")["fields"]
        assert [field["same"] for field in fields] == sorted(field["same"] for field in fields)
        return {each["name"]: (each["before"], each["after"], each["words"]) for each in fields if not each["same"]}

    assert words("relabelled", "label") == {"label": ("cat", "dog", "differs")}
    assert words("relabelled", "moved")["boxes"][2] == "1 of 1 box differ, by at most 3 pixels"
    both = words("relabelled", "both")
    assert both["boxes"][2] == "1 box before, 2 after"
    assert "pixels" in both["image"][2]


def test_classes_are_compared_by_name(tmp_path: Path, ask: Callable[..., Any]) -> None:
    """A store whose classes have other numbers has the same labels; a class that is renamed is another label."""
    one = make(tmp_path / "a.lmdb", {"x": (1, 0, []), "y": (2, 1, []), "z": (3, 1, [])})
    other = make(tmp_path / "b.lmdb", {"x": (1, 1, []), "y": (2, 0, []), "z": (3, 2, [])}, ["dog", "cat", "wolf"])
    asker = ask(one, compare=other)

    finish(asker)

    assert list_keys(asker, "relabelled") == ["z"]
    assert list_keys(asker, "unchanged") == ["x", "y"]


def test_a_copy_is_unchanged_and_its_pictures_are_shown(tmp_path: Path, ask: Callable[..., Any]) -> None:
    """Nothing differs; thumbnails of the second store are its own."""
    one = make(tmp_path / "a.lmdb", {"x": (1, 0, []), "y": (2, 1, [])})
    asker = ask(one, compare=make(tmp_path / "b.lmdb", {"x": (1, 0, []), "y": (2, 1, [])}))

    assert finish(asker)["counts"]["unchanged"] == 2
    status, headers, body = asker.request("api/compare/thumb/1?side=64")
    assert (status, headers["content-type"], body[8:12]) == (200, "image/webp", b"WEBP")


def test_a_record_that_cannot_be_read_is_unreadable(tmp_path: Path, ask: Callable[..., Any]) -> None:
    """It is neither changed nor unchanged, and the others are compared."""
    one, other = (make_photos(tmp_path / name, 4) for name in ("a", "b"))
    (other / "dogs" / "1.jpg").write_bytes(picture(9))
    asker = ask(one, compare=other)
    (other / "cats" / "0.jpg").unlink()  # after the folder was listed

    counts = finish(asker)["counts"]

    assert (counts["unreadable"], counts["changed"], counts["unchanged"]) == (1, 1, 2)


def test_keys_that_occur_twice_are_paired_in_order_and_counted() -> None:
    """The first with the first; what is left over is removed or added."""
    pairing = pair_keys(["a", "b", "a", "c", "a"], ["a", "d", "a", "b"])

    pairs = zip(pairing.before.tolist(), pairing.after.tolist(), strict=True)
    assert list(pairs) == [(0, 0), (1, 3), (2, 2)]
    assert (pairing.removed.tolist(), pairing.added.tolist(), pairing.repeated) == ([3, 4], [1], (2, 1))


def test_pairs_are_those_of_a_dictionary() -> None:
    """For many keys in any order, and for none."""
    rng = np.random.default_rng(0)
    one, other = (rng.permutation(2000)[:1500].tolist() for _ in range(2))
    pairing = pair_keys([str(key) for key in one], [str(key) for key in other])

    assert [one[at] for at in pairing.before] == [other[at] for at in pairing.after]
    assert {one[at] for at in pairing.before} == set(one) & set(other)
    assert {one[at] for at in pairing.removed} == set(one) - set(other)
    assert {other[at] for at in pairing.added} == set(other) - set(one)
    assert len(pair_keys([], []).before) == 0


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("list?kind=odd", "kind must be one of changed, relabelled, removed, added, unreadable, unchanged"),
        ("pair?before=0&after=99", "after must be in [0, 6), got '99'"),
        ("thumb/6", "index must be in [0, 6), got 6"),
    ],
)
def test_wrong_requests(compared: Any, path: str, sentence: str) -> None:
    """400 and a sentence."""
    status, _, body = compared.request(f"api/compare/{path}")

    assert status == 400
    assert sentence in json.loads(body)["error"]
