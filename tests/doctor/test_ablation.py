"""A loader whose stage is given back from memory does not do this stage's work, and does the others'."""

from __future__ import annotations

import builtins
import functools
import io
import marshal
import os
import pickle
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from PIL import Image  # noqa: E402  # beside torch
from torch.utils import data as td  # noqa: E402  # it needs torch

import penstock as ps  # noqa: E402  # as above
import penstock.torch  # noqa: E402  # as above
from penstock.doctor.trials import ablation  # noqa: E402  # as above
from penstock.doctor.trials.changed_loader import Change, apply_change  # noqa: E402  # as above
from penstock.doctor.trials.forked_child import run_in_child  # noqa: E402  # as above

LOADERS: dict[str, Any] = {
    "torch": td.DataLoader,
    "penstock.torch": penstock.torch.DataLoader,
    "penstock": functools.partial(ps.DataLoader, collate_fn=np.array),
}


class Counted:
    """Bytes that tell how often they were read from a file, decoded, and changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, what: str) -> None:
        """Write down a piece of work, whatever functions are replaced."""
        descriptor = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{what}\n".encode())
        os.close(descriptor)

    def counts(self) -> dict[str, int]:
        """How often each piece of work was done since the last call."""
        lines = (self.folder / "log").read_text().split()
        (self.folder / "log").unlink()
        return {what: lines.count(what) for what in set(lines)}


class Samples(Counted, td.Dataset[Any]):
    """Samples that pass all stages."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        with (self.folder / "sample.pickle").open("rb") as file:
            content = pickle.load(file)  # as users do
        self.note("augment")
        return torch.tensor(content)


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    """A dataset whose file is there."""
    (tmp_path / "sample.pickle").write_bytes(pickle.dumps([1.0, 2.0]))
    return Samples(tmp_path)


def drain(loader: Any, stage: Any, batches: int = 6) -> Any:
    """What a changed loader gives, and what its dataset notes once its memory is full; in a child process."""

    def work() -> Any:
        changed = apply_change(loader, Change(given=stage))
        iterator = iter(changed)
        next(iterator)
        return [np.asarray(next(iterator)).tolist() for _ in range(batches)]

    return run_in_child(work, 60.0)


@pytest.mark.parametrize("kind", list(LOADERS))
def test_samples_come_from_memory(kind: str, samples: Samples) -> None:
    """The dataset makes the samples of one batch, and no more; the batches are as they were."""
    loader = LOADERS[kind](samples, batch_size=4)

    taken = drain(loader, "sample")

    assert taken == [[[1.0, 2.0]] * 4] * 6
    assert samples.counts() == {"augment": 4}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stage", ["read", "decode"])
def test_calls_of_a_stage_come_from_memory(
    stage: str, workers: int, samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not of the stage is done for each sample; batches are as they were."""
    decode, read = pickle.load, open

    def load(file: Any) -> Any:
        samples.note("decode")
        return decode(file)

    def open_noted(path: Any, *args: Any, **more: Any) -> Any:
        if str(path).endswith("sample.pickle"):
            samples.note("read")
        return read(path, *args, **more)

    monkeypatch.setattr(pickle, "load", load)
    monkeypatch.setattr(io, "open", open_noted)
    monkeypatch.setattr(builtins, "open", open_noted)

    taken = drain(td.DataLoader(samples, batch_size=4, num_workers=workers), stage, 2)

    counts = samples.counts()
    assert taken == [[[1.0, 2.0]] * 4] * 2
    assert counts[stage] == 4
    assert counts["augment"] >= 12
    assert counts["read" if stage == "decode" else "decode"] == counts["augment"]


def test_a_collated_batch_comes_from_memory(samples: Samples) -> None:
    """Samples are made, and the first batch is given."""

    def collate(rows: list[Any]) -> Any:
        samples.note("collate")
        return torch.stack(rows)

    taken = drain(td.DataLoader(samples, batch_size=4, collate_fn=collate), "collate")

    assert taken == [[[1.0, 2.0]] * 4] * 6
    assert samples.counts() == {"augment": 28, "collate": 1}


def test_a_batch_that_is_not_sent(samples: Samples) -> None:
    """Workers build it, and send a number; without workers nothing is sent."""
    assert drain(td.DataLoader(samples, batch_size=4, num_workers=2), "transport") == [0] * 6
    assert samples.counts()["augment"] >= 28
    with pytest.raises(ablation.NotApplicableError, match="where they are used"):
        apply_change(td.DataLoader(samples), Change(given="transport"))


class Pictures(Samples):
    """Photographs that Pillow decodes when their pixels are wanted."""

    def __getitem__(self, index: int) -> Any:
        return np.asarray(Image.open(self.folder / "a.png").convert("RGB"))


@pytest.mark.parametrize("stage", ["read", "decode"])
def test_pictures_of_pillow(stage: str, tmp_path: Path) -> None:
    """The file or the pixels are given; the picture is the same."""
    pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png")

    taken = drain(td.DataLoader(Pictures(tmp_path), batch_size=2, collate_fn=np.stack), stage, 3)

    assert taken == [[pixels.tolist()] * 2] * 3


class ChangedPictures(Samples):
    """Photographs whose first pixel is changed in place."""

    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.folder / "a.png")
        first = image.getpixel((0, 0))
        assert isinstance(first, tuple)
        image.putpixel((0, 0), tuple(value + 1 for value in first))
        return np.asarray(image)


def test_pictures_that_are_changed_in_place_are_given_as_they_were(tmp_path: Path) -> None:
    """The pixels are shared, and copied only by what changes them."""
    Image.new("RGB", (5, 4), (7, 8, 9)).save(tmp_path / "a.png")

    taken = drain(td.DataLoader(ChangedPictures(tmp_path), batch_size=2, collate_fn=np.stack), "decode", 3)

    assert [batch[0][0][0] for batch in taken] == [[8, 9, 10]] * 3


class Rows(Samples):
    """Rows of a database that is opened for each, or once."""

    def __init__(self, folder: Path, *, once: bool) -> None:
        super().__init__(folder)
        with sqlite3.connect(folder / "a.db") as base:
            base.execute("create table t (x integer)")
            base.execute("insert into t values (7)")
        self.once = once
        self.base: Any = None

    def __getitem__(self, index: int) -> Any:
        if self.base is None or not self.once:
            self.base = sqlite3.connect(self.folder / "a.db")
        rows = [row[0] for row in self.base.execute("select x from t")]
        return rows[0] + self.base.execute("select max(x) from t").fetchone()[0]


@pytest.mark.parametrize("once", [False, True])
def test_what_is_opened_gives_what_it_gave(tmp_path: Path, *, once: bool) -> None:
    """Methods of an open file give what was kept, also where it is opened with the first sample only."""
    assert drain(td.DataLoader(Rows(tmp_path, once=once), batch_size=2), "read", 3) == [[14, 14]] * 3


class Lines(td.IterableDataset[Any]):
    """The records of a file, of 5 bytes each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Any]:
        with self.path.open("rb") as file:
            while content := file.read(5):
                yield marshal.loads(content)  # a number, as the test has written it


@pytest.mark.parametrize("stage", ["sample", "read", "decode"])
def test_a_stream_begins_anew(stage: str, tmp_path: Path) -> None:
    """The samples of its first batch come again and again."""
    (tmp_path / "lines").write_bytes(b"".join(map(marshal.dumps, range(100))))

    assert drain(td.DataLoader(Lines(tmp_path / "lines"), batch_size=3), stage) == [[0, 1, 2]] * 6


class Numbers(Samples):
    """Samples without a file."""

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)


@pytest.mark.parametrize("stage", ["read", "decode"])
def test_a_stage_without_a_known_call(stage: str, tmp_path: Path) -> None:
    """It cannot be given back."""

    def why() -> str:
        try:
            apply_change(td.DataLoader(Numbers(tmp_path)), Change(given=stage))  # type: ignore[arg-type]  # one of both
        except ablation.NotApplicableError as error:
            return str(error)
        return ""

    assert run_in_child(why, 60.0) == f"no call is known that belongs to the stage {stage}"
