"""Pictures of the slowest samples."""

from __future__ import annotations

import gc
import io
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from penstock.doctor.reports.thumbnails import find_image, make_thumbnails
from penstock.doctor.trials import forked_child


@pytest.fixture(autouse=True)
def _say_how_children_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Where a test fails, the log says why there is no picture."""
    caplog.set_level(logging.DEBUG, "penstock.doctor.trials.forked_child")


RED = np.full((40, 60, 3), (200, 30, 20), np.uint8)


class Mixed:
    """A dataset whose samples are what the dict says; a callable is called."""

    def __init__(self, samples: dict[int, Any]) -> None:
        self.samples = samples
        self.asked: list[int] = []

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        value = self.samples[index]
        return value() if callable(value) else value


def encoded(pixels: np.ndarray[Any, Any], kind: str = "PNG") -> bytes:
    """The pixels as a file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def opened(picture: bytes) -> np.ndarray[Any, Any]:
    """The pixels of a thumbnail."""
    image = Image.open(io.BytesIO(picture))
    assert image.format == "JPEG"
    return np.asarray(image)


@pytest.mark.parametrize(
    "sample",
    [
        RED,
        (RED, 3),
        {"label": np.int64(3), "image": RED},
        {"boxes": np.zeros((5, 4)), "img": torch.from_numpy(RED.copy()).permute(2, 0, 1)},
        (Image.fromarray(RED), "name"),
        [encoded(RED), 1],
        torch.from_numpy(RED.copy())[None],
        np.dstack([RED, np.full((40, 60), 255, np.uint8)]),
    ],
    ids=["HWC", "pair", "dict", "CHW tensor", "PIL", "encoded", "batch of one", "RGBA"],
)
def test_the_image_of_a_sample_is_found(sample: object) -> None:
    """In whatever form a dataset gives it, the thumbnail has its colours and proportions."""
    picture = opened(make_thumbnails(Mixed({7: sample}), [7], side=30, budget_s=60)[7])

    assert picture.shape == (20, 30, 3)
    assert np.abs(picture.astype(int) - RED[0, 0]).max() <= 6


def test_normalised_values_are_stretched() -> None:
    """Floats are shown from their least to their greatest, also in half precision and with NaN."""
    ramp = torch.linspace(-2, 2, 64).expand(1, 64, 64).to(torch.bfloat16).clone()
    ramp[0, 0, 0] = float("nan")

    picture = opened(make_thumbnails(Mixed({0: ramp}), [0], budget_s=60)[0])

    assert picture[32, :, 0].min() <= 6
    assert picture[32, :, 0].max() >= 249


@pytest.mark.parametrize(
    "sample",
    [3, "text", b"bytes", None, np.zeros(5), np.zeros((4, 4, 3)), np.zeros((5, 9, 9)), {"a": {"b": {"c": [RED]}}}],
)
def test_a_sample_without_an_image_has_no_picture(sample: object) -> None:
    """Numbers, text, vectors, tiny arrays and what lies too deep are no images."""
    assert find_image(sample) is None
    assert make_thumbnails(Mixed({0: sample}), [0]) == {}


def test_a_sample_that_raises_is_left_out() -> None:
    """So is one that is not there, and one that ends the process takes only those behind it."""
    samples = {0: RED, 1: lambda: 1 / 0, 3: RED, 4: lambda: os._exit(3), 5: RED}

    assert sorted(make_thumbnails(Mixed(samples), [0, 1, 2, 3, 4, 5], budget_s=60)) == [0, 3]


def test_the_dataset_of_the_script_is_not_asked(capfd: pytest.CaptureFixture[str]) -> None:
    """Samples are made in a child process, whose output goes nowhere."""

    def shout() -> Any:
        os.write(1, b"loud")
        return RED

    dataset = Mixed({0: shout})

    assert list(make_thumbnails(dataset, [0], budget_s=60)) == [0]
    assert dataset.asked == []
    assert capfd.readouterr().out == ""


class WaitsForItsThread:
    """Garbage, as an abandoned loader is, whose finalizer waits for a thread that a forked child does not have."""

    def __init__(self) -> None:
        self.itself, self.made_by = self, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.made_by:
            time.sleep(600)


def test_garbage_of_the_script_is_not_collected_in_the_child() -> None:
    """Its finalizers are the script's: they may wait for its threads, or close what both processes share."""

    def collect() -> Any:
        gc.collect()
        return RED

    WaitsForItsThread()

    assert list(make_thumbnails(Mixed({0: collect}), [0], budget_s=60)) == [0]


def test_a_sample_that_takes_too_long_is_left_out(tmp_path: Path) -> None:
    """After the budget the child is killed, with what it has started; what came before is kept."""
    started = tmp_path / "pid"

    def hang() -> None:
        child = os.fork()
        if not child:
            signal.pause()
        started.write_text(str(child))
        time.sleep(600)

    pictures = make_thumbnails(Mixed({0: RED, 1: hang}), [0, 1], budget_s=1.5)

    assert list(pictures) == [0]
    stat = Path(f"/proc/{started.read_text()}/stat")
    for _ in range(200):
        if not stat.exists() or stat.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("what the child had started is alive")


def test_nothing_is_forked_where_that_is_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a library that does not work in a forked child there are no pictures; nor for a stream."""
    assert make_thumbnails(iter([RED]), [0]) == {}
    assert make_thumbnails(Mixed({-1: RED}), [-1]) == {}

    monkeypatch.setattr(forked_child, "libraries_without_fork", lambda: ["lance"])

    assert make_thumbnails(Mixed({0: RED}), [0]) == {}
