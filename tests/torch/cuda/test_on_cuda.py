"""Decoding on a CUDA device: ``pytest -m cuda``. Without a device these tests are skipped."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benches.device.device import open_device
from benches.device.pixels import compare_damaged
from penstock.torch import DataLoader
from penstock.torch.cuda.compiler import CudaKernels
from penstock.torch.cuda.decoder import PacketDecoder, RowFormat
from tests.photographs import write_photographs
from tests.torch.cuda.pictures import cases_of, jpegs, mutated
from tests.torch.cuda.sanitized import decode_batches
from tests.torch.cuda.test_loader import PIPELINES, dataset
from tests.torch.device.devices import needs_cuda


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs."""
    return write_photographs(tmp_path_factory.mktemp("folder"), per_class=2)


@needs_cuda
def test_rows_equal_those_of_the_cpu() -> None:
    """Every sampling, crop, filter and scale, and damaged scans: no value differs, and damage is seen."""
    device = torch.device("cuda", torch.cuda.current_device())
    torch.empty(1, device=device)
    kernels = CudaKernels(device)
    for (name, image), seed in zip(jpegs().items(), itertools.count()):
        for filter_name in ("box", "bilinear", "bicubic", "cv2-linear", "cv2-area", "cv2-nearest"):
            for case in cases_of(image, seed, count=4):
                for encoded in (image, *mutated(image, seed, count=2)):
                    expected, failures = case.fill(encoded, filter_name)
                    packets, _, refused = case.write_packets(encoded, filter_name, "tiles")
                    if refused:
                        continue
                    row_format = RowFormat(
                        case.channels, case.height, case.width, torch.uint8, is_reversed=case.mode == "BGR"
                    )
                    decoder = PacketDecoder(kernels, device, row_format)
                    rows, status = decoder.decode(packets, np.array([0, len(packets)]))
                    if status.item() == 0:
                        assert not failures, name
                        np.testing.assert_array_equal(rows.cpu().numpy(), expected, err_msg=f"{name}: {case}")
                    else:
                        assert encoded is not image, name


@needs_cuda
def test_batches_of_all_pictures_in_groups() -> None:
    """Few launches, which a checker of addresses and races also runs in little time."""
    device = torch.device("cuda", torch.cuda.current_device())
    torch.empty(1, device=device)

    assert decode_batches(CudaKernels(device), 5, device) > 0


@needs_cuda
def test_damaged_batches_leave_the_context_whole() -> None:
    """Every other image of a batch is damaged, also by random bytes; the others, and the next batch, are right."""
    found = compare_damaged(open_device(rehearse=False), list(jpegs().values()), rounds=8)
    torch.cuda.synchronize()

    assert found.damaged > 0
    assert found.different == 0, found.examples
    assert torch.ones(3, device="cuda").sum().item() == 3


@needs_cuda
@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("num_workers", [0, 1, 4])
def test_batches_are_the_same(folder: Path, pipeline: str, num_workers: int) -> None:
    """Whole loaders, while the consumer's stream is busy."""
    options: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 5, "num_workers": num_workers}
    cpu, device = (DataLoader(dataset(folder, pipeline), decode=decode, **options) for decode in ("cpu", "cuda"))
    busy = torch.rand(2000, 2000, device="cuda")
    for _ in range(3):
        kept = []
        for (images, labels), (own, own_labels) in zip(cpu, device, strict=True):
            busy = (busy @ busy).clamp_(0, 1)
            kept.append((images.clone(), labels.clone(), own.clone(), own_labels.clone()))
            del own
        for images, labels, own, own_labels in kept:
            assert torch.equal(images, own.cpu())
            assert torch.equal(labels, own_labels.cpu())


@needs_cuda
def test_memory_stays_flat(folder: Path) -> None:
    """Epoch after epoch, no memory of the device is lost."""
    loader = DataLoader(dataset(folder), 8, shuffle=True, num_workers=2, seed=1, decode="cuda")
    held = []
    for _ in range(12):
        for batch in loader:
            del batch
        gc.collect()
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_allocated())
    assert max(held[3:]) == min(held[3:])
