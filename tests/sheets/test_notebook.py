"""What notebooks and interpreters show: small pages, short reprs, public names; and showing changes nothing."""

from __future__ import annotations

import base64
import importlib
import io
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock import progress
from penstock import transforms as T
from penstock.progress import show_progress
from penstock.ragged import Padded, Ragged
from penstock.sheets import notebook

EVIL = "<script>alert(1)</script>"


def write_photos(folder: Path, per_class: int = 3) -> Path:
    """Pictures of two classes, one of them with markup in its name."""
    for name in ("cat", EVIL.replace("/", "_")):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = np.random.default_rng(number).integers(0, 256, (30, 40, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg")
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ps.Store]:
    """A pack of six pictures."""
    ps.pack(write_photos(tmp_path / "photos"), tmp_path / "photos.lmdb")
    with ps.open(tmp_path / "photos.lmdb") as opened:
        yield opened


def show(thing: Any) -> str:
    """The page of an object."""
    page: str = thing._repr_html_()
    return page


def pictures(page: str) -> list[Image.Image]:
    """The pictures of a page."""
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    return [Image.open(io.BytesIO(base64.b64decode(each))) for each in found]


def test_a_store_shows_fields_and_pictures(store: ps.Store) -> None:
    """Names, kinds and classes of the fields, and some records in one picture; texts are escaped."""
    page = show(store)

    assert "<th>field</th>" in page
    assert "<td>label</td><td>label</td>" in page
    assert "6 records" in page
    assert "<script" not in page
    assert [picture.width > 480 for picture in pictures(page)] == [True]
    assert len(page) < 200_000


def test_datasets_show_records_and_call_nothing(store: ps.Store) -> None:
    """The transform is named, but not called, also in a subset; a dataset of the user's is shown by its repr."""

    class Own(ps.Dataset[int]):
        def __getitem__(self, index: int) -> int:
            raise AssertionError(index)

    def transform(sample: Any) -> Any:
        raise AssertionError(sample)

    dataset = ps.StoreDataset(store, ("image", "label"), transform)

    assert len(pictures(show(dataset))) == 1
    assert "before the transform" in show(dataset)
    assert len(pictures(show(ps.Subset(dataset, np.array([5, 1]))))) == 1
    assert show(Own()) == '<div style="overflow-x:auto"><p><code>Own()</code></p></div>'


def test_a_record_shows_its_picture_and_values(store: ps.Store) -> None:
    """Values in a table, bytes by their number, the picture with what is annotated in it."""
    record = ps.Record(3, EVIL, {**store[0].fields, "boxes": np.array([[2, 2, 20, 20]], np.float32), "text": EVIL * 50})

    page = show(record)

    assert "<td>boxes</td><td>float32[1, 4]</td>" in page
    assert re.search(r"<td>image</td><td>[\d,]+ bytes</td>", page)
    assert "<script" not in page
    assert len(pictures(page)) == 1
    assert show(ps.Record(0, "a", {"label": 1})).count("<img") == 0


def test_broken_images_and_closed_stores_are_shown_as_such(tmp_path: Path) -> None:
    """Nothing is raised: a tile says that its image cannot be decoded, and the page what is wrong with a store."""
    store = ps.open(write_photos(tmp_path / "photos", per_class=1))
    (tmp_path / "photos" / "cat" / "0.jpg").write_bytes(b"\xff\xd8\xff\xe0 no picture")

    assert "StoreError" in show(store) or len(pictures(show(store))) == 1
    store.close()
    assert "closed" in show(store)
    page = show(ps.Record(0, "a", {"image": b"\xff\xd8\xff\xe0 no picture"}))
    assert len(pictures(page)) == 1


def test_few_records_are_read(store: ps.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a remote store three, of a local one eight at most, and no column."""
    read: list[int] = []
    original = type(store).read

    def reading(self: Any, indices: Any) -> Any:
        read.extend(indices)
        return original(self, indices)

    monkeypatch.setattr(type(store), "read", reading)
    monkeypatch.setattr(type(store), "column", lambda *_: pytest.fail("a column is read"))
    monkeypatch.setattr(notebook, "is_remote_url", lambda _: True)

    show(store)

    assert read == [0, 2, 4]


def test_stores_without_images_show_values(tmp_path: Path) -> None:
    """Their first fields are in a table."""
    ps.pack([{"count": number, "name": f"n{number}"} for number in range(4)], tmp_path / "table.lmdb")

    with ps.open(tmp_path / "table.lmdb") as store:
        page = show(store)

    assert "<td>3</td><td>&#x27;n3&#x27;</td>" in page


def test_showing_changes_nothing(store: ps.Store) -> None:
    """Neither random numbers, nor the state of a loader, nor what it counted; nothing is decoded by its dataset."""
    dataset = ps.StoreDataset(store, ("image", "label"), T.Pipeline([T.Decode(), T.Resize((16, 16))]))
    loader = ps.DataLoader(dataset, 2, shuffle=True, seed=1)

    def look() -> tuple[object, ...]:
        return loader.state_dict(), loader.stats(), random.getstate(), repr(np.random.get_state())  # noqa: NPY002

    before = look()

    for thing in (store, dataset, store[0], ps.Subset(dataset, [1]), loader, loader.sampler):
        repr(thing), dir(thing)
        if hasattr(thing, "_repr_html_"):
            show(thing)

    assert look() == before


@pytest.mark.parametrize("form", ["list", "dict", "padded", "flat", "tensors"])
def test_batches_are_drawn_sample_by_sample(form: str, store: ps.Store) -> None:
    """``ps.show(batch)`` draws the samples of a batch in any structure, as those of its dataset."""
    images = np.random.default_rng(0).random((3, 3, 20, 30)).astype(np.float32)
    boxes = [np.array([[1, 1, 9, 9]] * count, np.float32).reshape(-1, 4) for count in (1, 0, 2)]
    labels = np.array([0, 1, 0])
    padded = Padded(np.stack([np.pad(each, ((0, 2 - len(each)), (0, 0))) for each in boxes]), np.array([1, 0, 2]))
    batches: dict[str, Any] = {
        "list": [images, labels],
        "dict": {"image": images, "label": labels, "boxes": boxes},
        "padded": {"image": images, "boxes": padded},
        "flat": {"image": images, "boxes": Ragged(np.concatenate(boxes), np.array([0, 1, 1, 3]))},
        "tensors": [list(images), [{"boxes": each} for each in boxes]],
    }

    sheet = ps.show(batches[form], tile=64)

    samples = [(images[i], {"boxes": boxes[i]}) if form != "list" else (images[i], labels[i]) for i in range(3)]

    class Same(ps.Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return samples[index]

    expected = ps.show(Same(), tile=64)
    if form != "dict":  # which also has labels
        assert (np.asarray(sheet)[60:] == np.asarray(expected)[60:]).all()
    assert sheet.size == expected.size or form == "dict"


def test_reprs_are_short(store: ps.Store) -> None:
    """One line, no array, no address."""
    dataset = ps.StoreDataset(store, ("image", "label"))
    big = np.zeros(100_000)
    things: list[Any] = [
        store, store[0], dataset, ps.Subset(dataset, np.arange(6)), ps.ConcatDataset([dataset] * 20),
        ps.ArrayDataset(big), ps.StackDataset(a=dataset, b=dataset), ps.split(store, [0.5, 0.5]),
        ps.RandomSampler(dataset, seed=1), ps.WeightedRandomSampler(big + 1, 5, seed=1),
        ps.SubsetRandomSampler(big.astype(int)), ps.BatchSampler(range(100_000), 2, drop_last=False),
        ps.DataLoader(dataset, 2), ps.Record(0, "k", {"x": big}),
    ]  # fmt: skip

    for thing in things:
        text = repr(thing)
        assert len(text) < 250, text
        assert "\n" not in text
        assert " at 0x" not in text
        assert "0., 0." not in text
    assert repr(ps.Subset(dataset, [1, 2])) == "Subset(dataset=StoreDataset, indices=[1, 2])"
    assert repr(ps.ArrayDataset(big)) == "ArrayDataset(arrays=(float64[100000]))"


@pytest.mark.parametrize("name", ["annotations", "doctor", "transforms", "sheets", "torch"])
def test_completion_shows_public_names(name: str) -> None:
    """``dir`` of a public module lists its public names alone."""
    if name == "torch":
        pytest.importorskip("torch")
    module = importlib.import_module(f"penstock.{name}")

    assert [each for each in dir(module) if not each.startswith("__")] == sorted(module.__all__)


def test_progress_in_a_notebook_replaces_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing shows one text in the cell and changes it, where a file would get line after line."""
    shown: list[str] = []

    class Handle:
        def update(self, content: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(f"again: {content['text/plain']}")

    class Display:
        @staticmethod
        def display(content: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
            assert raw
            assert display_id
            shown.append(content["text/plain"])
            return Handle()

    monkeypatch.setattr("penstock.progress.find_notebook", lambda: Display)
    monkeypatch.setattr("penstock.progress._NOTEBOOK_S", 0.0)

    with show_progress("packing") as report:
        report(1, 2, 10)
        report(2, 2, 20)

    assert [text.split(" (")[0] for text in shown] == ["packing: 1 of 2", "again: packing: 2 of 2"]


def test_lines_of_progress_are_at_least_a_period_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run in a file gets a line now and then, and a short one none."""
    now, stream = [0.0], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    report = progress.report_lines(stream)

    for now[0] in (1.0, 9.9, 10.0, 11.0, 19.9, 25.0):
        report(f"at {now[0]}")

    assert stream.getvalue() == "at 10.0\nat 25.0\n"
