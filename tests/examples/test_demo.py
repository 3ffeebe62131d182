"""The demo runs end to end, small, on its own photographs and on a user's folder."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import penstock as ps

pytest.importorskip("torch", reason="the demo compares with torch")
pytest.importorskip("skimage", reason="the demo's photographs come inside scikit-image")
if importlib.util.find_spec("torchvision") is None:  # not imported: beside a foreign torch that takes the demo's care
    pytest.skip("the demo compares with torchvision", allow_module_level=True)

from penstock.demo import photographs
from tests.examples.example_scripts import import_example

run: Any = import_example("demo").run
tour: Any = import_example("demo.tour")
QUICK: Any = tour.QUICK
SMALL = replace(QUICK, rounds=1, round_s=0.1, epoch_images=64)


def say(folder: Path, scale: Any, images: Path | None = None) -> str:
    """Run the demo in ``folder``, and give what it printed."""
    with (folder / "said.txt").open("w") as file:
        tour.Tour(folder / "out", scale, Console(file=file, width=200)).run(images)
    return (folder / "said.txt").read_text()


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A quick run on the demo's own photographs: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    return folder / "out", say(folder, QUICK)


def test_a_quick_run_shows_every_step(said: tuple[Path, str]) -> None:
    """The demo packs, verifies, shows, measures, trains, resumes to the byte, and tests on held-out images."""
    output, text = said

    with ps.open(output / "train.lmdb") as store:
        records, classes = len(store), store.schema["label"].classes
    with Image.open(output / "contact-sheet.png") as sheet:
        width, height = sheet.size
    resumed = re.search(r"(\d+) of (\d+) remaining batches are the same to the byte", text)
    tested = re.search(r"(\d+) of (\d+) held-out images correct", text)
    said_stop = re.search(r"stopped after batch (\d+)", text)
    stopped = json.loads((output / "loader-state.json").read_text())

    assert records == QUICK.train * len(photographs.CLASSES)
    assert list(classes) == sorted(photographs.CLASSES)
    assert min(width, height) > 200
    assert text.count("all checksums are correct") == 2
    assert text.index("held-out images correct") < text.index("penstock doctor on its first epoch")
    assert f"the doctor's page: {output / 'doctor.html'}" in text
    assert "<title>penstock doctor: " in (output / "doctor.html").read_text()
    assert re.search(r"penstock is \d+\.\d times as fast", text)
    assert resumed
    assert resumed[1] == resumed[2] != "0"
    assert tested
    assert int(tested[2]) == QUICK.held_out * len(photographs.CLASSES)
    assert said_stop
    assert stopped["penstock"]["epoch"] == QUICK.epochs // 2
    assert stopped["_num_yielded"] == int(said_stop[1]) > 0


@pytest.mark.slow
def test_a_second_run_uses_the_same_folder(said: tuple[Path, str]) -> None:
    """Running again into the same output is harmless, and makes no photograph anew."""
    output, _ = said
    first = output / "photographs" / "train" / "cat" / "0.jpg"
    written = first.stat().st_mtime_ns

    text = say(output.parent, SMALL)

    assert first.stat().st_mtime_ns == written
    assert "same to the byte" in " ".join(text.split())


@pytest.mark.slow
def test_a_users_folder_is_split_at_random(tmp_path: Path) -> None:
    """On the user's folder a fifth of the images is held out; a file that is no image is named, not hidden."""
    draw = np.random.default_rng(0)
    for number in range(100):
        path = tmp_path / "mine" / ("red" if number % 2 else "blue") / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 60, (90, 120, 3), np.uint8)
        pixels[..., 0 if number % 2 else 2] += 150
        Image.fromarray(pixels).save(path)
    (tmp_path / "mine" / "red" / "notes.jpg").write_text("not a photograph")

    text = " ".join(say(tmp_path, SMALL, tmp_path / "mine").split())
    assert "left out: red/notes.jpg" in text
    assert re.search(r"\d+ of 20 held-out images correct", text)


def test_too_few_photographs_are_refused(tmp_path: Path) -> None:
    """A folder that cannot fill a few batches is an ArgumentError that says how many are needed."""
    (tmp_path / "mine").mkdir()
    Image.new("RGB", (64, 64)).save(tmp_path / "mine" / "one.jpg")

    with pytest.raises(ps.ArgumentError, match=r"needs at least 80 images, but .* has 1 image"):
        run(tmp_path / "mine", tmp_path / "out", quick=True)


def test_crops_of_the_two_parts_share_no_pixel() -> None:
    """Held-out crops lie left of every training crop of the same photograph."""
    size = (451, 300)

    left = max(crop.box[2] for crop in photographs._draw_crops(Path("left"), size, 200, (0, 0.7)))
    right = min(crop.box[0] for crop in photographs._draw_crops(Path("right"), size, 200, (0.7, 1)))

    assert left <= right


def test_photographs_are_the_same_everywhere(tmp_path: Path) -> None:
    """Two runs write the same files, byte for byte; an unfinished one leaves no folder that looks finished."""
    for name in ("a", "b"):
        photographs.write_photographs(tmp_path / name, train=3, held_out=2)

    first, second = (
        {str(p.relative_to(tmp_path / name)): p.read_bytes() for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in ("a", "b")
    )

    assert first == second
    assert len(first) == 5 * len(photographs.CLASSES) + 1
