"""The example of landmarks runs, resumes, measures as defined, and learns."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from tests.examples.example_scripts import fork_example, import_example, run_example

torch: Any = pytest.importorskip("torch")
pytest.importorskip("skimage")


@pytest.mark.slow
def test_quick_run(tmp_path: Path) -> None:
    """A short run composes, packs, resumes with the same batches and losses, evaluates and draws."""
    output = fork_example("landmarks", tmp_path / "printed", "--quick", "--output", str(tmp_path))

    assert "resumed after batch 1 of 3: 2 of 2 batches the same, 2 of 2 losses the same" in output
    assert re.search(r"\nmean error \d+\.\d\d % of the box, \d+% of points within 5 %, on 12 images", output)
    with Image.open(tmp_path / "predictions.png") as sheet:
        assert sheet.size == (4 * 128, 3 * 128)


@pytest.mark.slow
@pytest.mark.timeout(1500)  # two minutes of one core, which others may use
def test_learns(tmp_path: Path) -> None:
    """A third of the default run (2.3 % here) is far better than guesses, whose error is half a box."""
    output = run_example("landmarks", "--epochs", "4", "--output", str(tmp_path))

    [error] = re.findall(r"\nmean error (\d+\.\d\d) %", output)
    assert float(error) <= 5


def test_points_of_another_format(tmp_path: Path) -> None:
    """The same points from RetinaFace's list are in the same batches as those from COCO's file."""
    landmarks, composed = import_example("landmarks"), import_example("composed")
    source = tmp_path / "set"
    composed.write_landmarks(source, {"train": 8})
    content = json.loads((source / "annotations" / "person_keypoints_train.json").read_text())
    lines = []
    for image, one in zip(content["images"], content["annotations"], strict=True):
        points = " ".join(f"{x} {y} 0.0" for x, y, _ in np.reshape(one["keypoints"], (-1, 3)).tolist())
        lines += [f"# {image['file_name']}", f"{' '.join(map(str, one['bbox']))} {points} 0.5"]
    (source / "train" / "label.txt").write_text("\n".join(lines) + "\n")
    batches = {}
    for form, folder, flag in (("coco", source, 1), ("retinaface", source / "train", 0)):
        store = tmp_path / f"{form}.lmdb"
        ps.pack(None, store, annotations=folder, format=form)
        options = landmarks.make_parser("landmarks", epochs=1, batch_size=4, lr=1e-3).parse_args([])
        options.pairs = landmarks.parse_pairs("0-1,3-4")
        options.least_flag = flag
        loader = landmarks.start(ps.open(store), options).loader
        batches[form] = [(images, landmarks.choose_points(*rest, flag)) for images, *rest in loader]

    assert len(batches["coco"]) == 2
    for (one, (points, sizes)), (other, (same, also)) in zip(*batches.values(), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(points, same)
        assert torch.equal(sizes, also)
        assert torch.isfinite(points).all()


def test_mirrored_points_exchange_names(tmp_path: Path) -> None:
    """After any mirror, the left eye and the left corner of the mouth of an upright face are on the left."""
    landmarks, composed = import_example("landmarks"), import_example("composed")
    composed.write_landmarks(tmp_path / "set", {"train": 16})
    ps.pack(None, tmp_path / "set.lmdb", annotations=tmp_path / "set", format="coco")
    options = landmarks.make_parser("landmarks", epochs=1, batch_size=4, lr=1e-3).parse_args([])
    store = ps.open(tmp_path / "set.lmdb")
    orders = {}
    for text in ("0-1,3-4", ""):
        options.pairs, options.least_flag = landmarks.parse_pairs(text), 1
        points = [rows for _, _, each in landmarks.start(store, options).loader for rows in each]
        orders[text] = torch.cat([rows[:, 0, 0] < rows[:, 1, 0] for rows in points])

    assert len(orders[""]) == 16
    assert orders["0-1,3-4"].all()
    assert 0 < orders[""].sum() < 16


def test_largest_box_counts() -> None:
    """Of several objects, the largest; points below the least flag, and a picture without objects, are NaN."""
    landmarks = import_example("landmarks")
    boxes = [torch.tensor([[0, 0, 4, 4], [10, 10, 30, 20]]).float(), torch.zeros(0, 4)]
    points = [torch.arange(12).reshape(2, 2, 3).float(), torch.zeros(0, 2, 3)]
    points[0][1, :, 2] = torch.tensor([2, 0])

    chosen, sizes = landmarks.choose_points(boxes, points, 1)

    assert chosen[0, 0].tolist() == [6, 7]
    assert chosen[0, 1].isnan().all()
    assert chosen[1].isnan().all()
    assert sizes[0] == pytest.approx(200**0.5)
    assert sizes[1].isnan()


@pytest.mark.parametrize("point", [(10.0, 12.0), (40.7, 21.3), (60.2, 33.9)])
def test_maps_with_the_least_loss_have_the_point(point: tuple[float, float]) -> None:
    """The point that is found in maps that were fitted to it is within a twentieth of a pixel of it."""
    landmarks = import_example("landmarks")
    images = torch.zeros(1, 3, 48, 72, dtype=torch.uint8)
    batch = (images, [torch.tensor([[0, 0, 72, 48]]).float()], [torch.tensor([[[*point, 2.0], [-9.0, 3.0, 2.0]]])])
    maps = torch.zeros(1, 2, 24, 36, requires_grad=True)
    optimizer = torch.optim.Adam([maps], 0.3)
    for _ in range(300):
        loss = landmarks.landmark_loss(lambda _: maps, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    found = landmarks.find_points(maps.detach())

    assert found[0, 0].tolist() == pytest.approx(point, abs=0.05)
    assert (maps[0, 1] == 0).all()  # outside the picture: it does not count


def test_pairs() -> None:
    """Pairs are numbers with a dash between them; an empty text has none."""
    landmarks = import_example("landmarks")

    assert landmarks.parse_pairs("0-1,3-4") == [(0, 1), (3, 4)]
    assert landmarks.parse_pairs("") == []
