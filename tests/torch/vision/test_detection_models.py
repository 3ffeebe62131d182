"""Models of torchvision train on the loader's batches as they come."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock import transforms as T
from penstock.stores.lmdb_pack.writer import LmdbWriter

torch: Any = pytest.importorskip("torch")
models: Any = pytest.importorskip("torchvision.models.detection")
torchvision: Any = pytest.importorskip("torchvision")

from penstock import torch as pt  # noqa: E402  # needs torch
from tests.loader.annotated_shapes import pack_shapes  # noqa: E402


@pytest.mark.parametrize("size", [[T.Resize((64, 96))], []], ids=["one size", "sizes"])
def test_a_detector_takes_the_batch(tmp_path: Path, size: list[T.Op]) -> None:
    """Images of one size or of several, one of them without an object: every loss is a number."""
    schema = ps.Schema({"image": ps.Field("image"), "boxes": ps.Field("boxes"), "labels": ps.Field("int64[*]")})
    writer = LmdbWriter(str(tmp_path / "pack"), schema, "source")
    for index in range(3):
        file = io.BytesIO()
        Image.new("RGB", (80 + 8 * index, 72), (index * 80, 90, 30)).save(file, "JPEG")
        boxes = np.array([[5, 6, 40, 50], [20, 10, 60, 70]], np.float32)[:index]
        values = {"image": file.getvalue(), "boxes": boxes, "labels": np.arange(1, index + 1)}
        writer.append(writer.prepare(str(index), values))
    writer.finish()
    model = models.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
    transform = [T.Decode(), *size, T.HorizontalFlip(), T.ToLayout("CHW", "float32")]
    data = ps.StoreDataset(tmp_path / "pack", None, transform, batch_form="torchvision")

    [(images, targets)] = pt.DataLoader(data, 3)
    losses = model(images, targets)

    assert all(torch.isfinite(loss) for loss in losses.values())
    assert (data.spec() is not None) == bool(size)


def test_a_model_of_instances_takes_the_batch(tmp_path: Path) -> None:
    """Masks that moved with their boxes are those that Mask R-CNN asks for, of images of one size and of several."""
    pack_shapes(tmp_path / "shapes.lmdb")
    backbone = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 16, 1), torch.nn.ReLU())
    backbone.out_channels = 8
    anchors = models.rpn.AnchorGenerator(sizes=((16, 32),), aspect_ratios=((1.0,),))
    names: Any = {"box_roi_pool": (7, 2), "mask_roi_pool": (14, 2)}
    pools = {name: torchvision.ops.MultiScaleRoIAlign(["0"], *sizes) for name, sizes in names.items()}
    model = models.MaskRCNN(backbone, 10, rpn_anchor_generator=anchors, min_size=64, max_size=96, **pools)
    fields = {"image": "image", "boxes": "boxes", "labels": "labels", "instances": "instances"}

    for size in ([T.Resize((48, 64))], []):
        ops = [T.Decode(), T.HorizontalFlip(), *size, T.SanitizeBoundingBoxes(2), T.ToLayout("CHW", "float32")]
        data = ps.StoreDataset(tmp_path / "shapes.lmdb", fields, ops, batch_form="torchvision")
        images, targets = next(iter(pt.DataLoader(data, 4)))
        losses = model(images, targets)
        assert torch.isfinite(losses["loss_mask"])
        assert all(torch.isfinite(loss) for loss in losses.values())
