"""The example of detection runs, resumes, and has the same batches from each format."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.examples.example_scripts import EXAMPLES, fork_example, import_example

torch: Any = pytest.importorskip("torch")


def _make_options(output: Path, **changed: object) -> argparse.Namespace:
    options = argparse.Namespace(output=output, format="voc", on_error="raise", quick=False, batch_size=8, seed=3)
    vars(options).update(data=EXAMPLES / "data" / "blood-cells", epochs=2, lr=1e-3, **changed)
    return options


def test_quick_run(tmp_path: Path) -> None:
    """A short run packs, resumes with the same batches and losses, evaluates and draws."""
    output = fork_example("detection", tmp_path / "printed", "--quick", "--output", str(tmp_path))

    assert "resumed after batch 1 of 3: 2 of 2 batches the same, 2 of 2 losses the same" in output
    assert re.search(r"mAP@0\.5 0\.\d{3}.* on 30 images", output)
    with Image.open(tmp_path / "predictions.png") as sheet:
        assert sheet.size == (960, 720)


@pytest.mark.slow
def test_formats_have_the_same_batches(tmp_path: Path) -> None:
    """From VOC, and from YOLO and COCO that are made of it, all bytes of two epochs of batches are the same."""
    pytest.importorskip("yaml")
    detection, training = import_example("detection"), import_example("training")
    own = _make_options(tmp_path).data
    made = {}
    for name in ("voc", "yolo", "coco"):
        options = _make_options(tmp_path, convert=name)
        source, form = (own, "voc") if name == "voc" else detection.convert(options)
        loader = detection.start(detection.pack(options, "train", source, form), options).loader
        made[name] = [training.digest(batch) for _ in range(2) for batch in loader]

    assert len(set(made["voc"])) == 22
    assert made["yolo"] == made["voc"]
    assert made["coco"] == made["voc"]


def test_continues_after_an_epoch(tmp_path: Path) -> None:
    """A run that is saved between epochs continues with the same batches and losses."""
    detection = import_example("detection")
    options = _make_options(tmp_path)
    options.quick, options.batch_size = True, 2
    store = detection.pack(options, "val", options.data, "voc")
    first, second = detection.start(store, options), detection.start(store, options)

    list(first.train())
    first.save(tmp_path / "saved.pt")
    second.load(tmp_path / "saved.pt")

    assert second.epoch == 1
    assert list(second.train()) == list(first.train())


def test_detector_learns_one_image() -> None:
    """A network that learns one image finds its boxes, whose sides and classes are those it was given."""
    detector = import_example("detector")
    torch.manual_seed(0)
    image = torch.full((1, 3, 96, 128), 200, dtype=torch.uint8)
    rows = torch.tensor([[8, 10, 50, 60, 0], [70, 20, 110, 80, 1], [60, 76, 76, 92, 2]], dtype=torch.float32)
    for row in rows.long().tolist():
        image[0, row[4], row[1] : row[3], row[0] : row[2]] = 30
    network = detector.Detector(3)
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    for _ in range(60):
        loss = detector.detection_loss(*network(image), [rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with torch.inference_mode():
        [found] = detector.find_boxes(*network(image))
    best = found[:3][found[:3, 4].argsort()]

    assert best[:, 4].tolist() == [0, 1, 2]
    assert torch.diagonal(detector.pairwise_iou(best[:, :4], rows[:, :4])).min() > 0.7
    assert best[:, 5].min() > 0.3
    assert (found[3:, 5] < 0.2).all()
