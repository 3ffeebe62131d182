"""Stage "pixels": every value that the device computes is compared with the processor's, and damage does no harm.

- Loaders: T1 and T2, with the same draws, ``decode="cuda"`` and ``decode="cpu"``.
- Whole images, and a crop of each image with one of the filters in turn, mirrored and turned.
- Malformed files: those that the processor refuses have a status, the others its pixels.
- Batches of whole and damaged images under valid seek tables, then a batch of whole ones.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

import penstock as ps
from benches.device.device import Device, open_device
from benches.device.program import Stage, run_stage
from benches.device.tasks import has_table, open_dataset, pipelines, read_files
from penstock import _native
from penstock import transforms as T
from penstock.torch import DataLoader
from penstock.torch.cuda.decoder import PacketDecoder, RowFormat
from tests.torch.cuda.pictures import Case, cases_of, mutated

__all__ = ["Comparison", "compare_damaged", "compare_images", "compare_loaders", "compare_malformed", "compare_mixed"]

FILTERS: Final = ("box", "bilinear", "bicubic", "cv2-linear", "cv2-area", "cv2-nearest")
MOST_PIXELS: Final = 1 << 22
"""Of a malformed file that is decoded."""


class Comparison:
    """Counts of what was compared."""

    def __init__(self) -> None:
        self.images = self.values = self.different = self.refused = self.damaged = 0
        self.examples: list[str] = []

    def add(self, name: str, expected: NDArray[Any], found: NDArray[Any]) -> None:
        """Compare one image, or several along the first axis."""
        self.images += len(expected)
        self.values += expected.size
        if (unlike := int((expected != found).sum())) > 0:
            self.different += unlike
            self.note(f"{name}: {unlike} of {expected.size} values differ")

    def note(self, text: str) -> None:
        """Keep the first sentences about what is wrong."""
        if len(self.examples) < 10:
            self.examples.append(text)

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        return dict(vars(self))


def run(stage: Stage) -> None:
    """Compare, and save after each part."""
    device = open_device(rehearse=stage.rehearse)
    pack, limit = stage.work / "photographs.lmdb", stage.choose(400, 12)
    photographs = read_files(pack, limit)
    for task, pipeline in pipelines().items():
        data = open_dataset(pack, pipeline, limit=limit)
        stage.found[f"{task}, a loader"] = compare_loaders(data, batch_size=stage.choose(64, 4)).as_dict()
        stage.save()
    stage.found["whole images, and a crop of each"] = compare_images(device, photographs).as_dict()
    stage.save()
    files = sorted(path for path in (stage.work / "malformed").rglob("*") if path.is_file())[:: stage.choose(1, 5)]
    stage.found["malformed files"] = compare_malformed(device, files).as_dict()
    stage.save()
    stage.found["a loader of malformed and whole files"] = compare_mixed(files, photographs).as_dict()
    stage.save()
    rounds = stage.choose(16, 2)
    stage.found["damaged batches"] = compare_damaged(device, photographs, rounds=rounds).as_dict()
    stage.found["context_is_whole"] = True  # else an error of CUDA has ended the program
    print(stage.found)


def compare_loaders(data: Any, batch_size: int, **others: Any) -> Comparison:
    """Two epochs of a loader whose images the device decodes, and of one of the processor's, in the same order."""
    found = Comparison()
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True, "seed": 11, "num_workers": 2, **others}
    cpu, device = (DataLoader(data, decode=decode, **options) for decode in ("cpu", "cuda"))
    for epoch in range(2):
        for number, (batch, other) in enumerate(zip(cpu, device, strict=True)):
            for expected, made in zip(batch, other, strict=True):
                found.add(f"epoch {epoch}, batch {number}", _bits(expected), _bits(made))
    found.images //= 2  # labels were counted too
    return found


def _bits(tensor: torch.Tensor) -> NDArray[Any]:
    """Values as integers, so that a NaN equals itself and -0.0 is not 0.0."""
    dtype = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.cpu().contiguous().view(dtype).numpy()


def compare_images(device: Device, photographs: Sequence[bytes]) -> Comparison:
    """Each photograph whole, with nothing resized, and in a crop with one of the filters."""
    found = Comparison()
    for number, photograph in enumerate(photographs):
        width, height = _native.sizes([photograph])[0].tolist()
        whole = Case((0, 0, width, height), width, height)
        crop = replace(next(cases_of(photograph, number, count=1)), flip=number % 4, orientation=number % 8 + 1)
        for case, filter_name in ((whole, "bilinear"), (crop, FILTERS[number % len(FILTERS)])):
            _compare_case(found, device, case, filter_name, photograph, f"photograph {number}, {filter_name}, {case}")
    return found


def _compare_case(
    found: Comparison, device: Device, case: Case, filter_name: str, image: bytes, name: str, *, is_whole: bool = True
) -> None:
    """Compare one crop. Of a whole image, a status is a fault; of a malformed one, a worker decodes it then."""
    packets, _, refused = case.write_packets(image, filter_name, "tiles")
    if refused:
        found.refused += 1  # a worker decodes it
        return
    expected, failures = case.fill(image, filter_name)
    row_format = RowFormat(case.channels, case.height, case.width, torch.uint8, is_reversed=case.mode == "BGR")
    rows, status = PacketDecoder(device.kernels, device.device, row_format).decode(packets, np.array([0, len(packets)]))
    if status.item() != 0:
        found.damaged += 1
        if is_whole and not failures:
            found.note(f"{name}: the device has status {status.item()}, and the processor decodes it")
    elif failures:
        found.different += 1
        found.note(f"{name}: the device has pixels, and the processor refuses: {failures}")
    else:
        found.add(name, expected, rows.cpu().numpy())


def compare_malformed(device: Device, files: Sequence[Path]) -> Comparison:
    """Two crops of each malformed file."""
    found = Comparison()
    for path in files:
        image = path.read_bytes()
        width, height = _native.sizes([image])[0].tolist()
        if not 0 < width * height <= MOST_PIXELS:
            found.refused += 1
            continue
        for case in cases_of(image, 0, count=2):
            _compare_case(found, device, case, "bilinear", image, path.name, is_whole=False)
    return found


def compare_mixed(files: Sequence[Path], photographs: Sequence[bytes]) -> Comparison:
    """A loader over malformed files and as many photographs: what is truncated is repaired, the rest skipped."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("malformed", "whole"):
            (Path(folder) / kind).mkdir()
        for number, path in enumerate(files):
            shutil.copy(path, Path(folder) / "malformed" / f"{number:04}.jpg")
            (Path(folder) / "whole" / f"{number:04}.jpg").write_bytes(photographs[number % len(photographs)])
        pipeline = T.Pipeline([T.Decode(), T.Resize((96, 96)), T.ToLayout("CHW", "uint8")])
        data = ps.StoreDataset(ps.open(folder), ("image", "label"), pipeline, on_truncated="repair")
        return compare_loaders(data, batch_size=16, on_error="skip", max_errors=len(data))


def compare_damaged(device: Device, photographs: Sequence[bytes], rounds: int, batch: int = 32) -> Comparison:
    """Batches in which every other image is damaged under a valid seek table, each followed by a batch of whole ones.

    Of damaged images some bytes of the scan are changed, or all are random. Whole images must have their pixels in
    both batches.
    """
    found = Comparison()
    usable = [photograph for photograph in photographs if has_table(photograph)]
    rng = np.random.default_rng(5)
    pictures = itertools.cycle(usable)
    for number in range(rounds):
        whole = [next(pictures) for _ in range(batch)]
        tables = [_native.build_index(image, "tiles") for image in whole]
        mixed = [_damage(image, rng, number) if place % 2 else image for place, image in enumerate(whole)]
        for images in (mixed, whole):
            _compare_batch(found, device, images, tables, [a is b for a, b in zip(images, whole, strict=True)], number)
        device.synchronize()  # raises if the context is lost
    return found


def _damage(image: bytes, rng: np.random.Generator, seed: int) -> bytes:
    """The image with another scan."""
    if seed % 2:
        return next(mutated(image, int(rng.integers(1 << 30)), count=1), image[:-200] + bytes(198) + image[-2:])
    first, last = image.rindex(b"\xff\xda") + 78, len(image) - 70  # a table is compared with the first and last bytes
    return image[:first] + rng.integers(0, 255, max(last - first, 0), np.uint8).tobytes() + image[max(last, first) :]


def _compare_batch(
    found: Comparison,
    device: Device,
    images: Sequence[bytes],
    tables: Sequence[bytes],
    whole: Sequence[bool],
    seed: int,
) -> None:
    """Decode a batch of crops at once, and compare the whole images in it."""
    packets, offsets, made = [], [0], []
    for image, table, is_whole in zip(images, tables, whole, strict=True):
        case = Case(next(_regions(image, seed)), 40, 30)
        written, _, refused = case.write_packets(image, "bilinear", "tiles", table)
        if refused:
            found.refused += 1
            continue
        packets.append(written)
        offsets.append(offsets[-1] + len(written))
        made.append((case, image, table, is_whole))
    row_format = RowFormat(3, 30, 40, torch.uint8)
    decoder = PacketDecoder(device.kernels, device.device, row_format)
    rows, status = decoder.decode(np.concatenate(packets), np.array(offsets))
    rows, states = rows.cpu(), status.cpu().tolist()
    for row, state, (case, image, table, is_whole) in zip(rows.numpy(), states, made, strict=True):
        found.damaged += state != 0
        if is_whole and state != 0:
            found.different += 1
            found.note(f"round {seed}: a whole image has status {state}")
        elif state == 0:
            expected, failures = case.fill(image, "bilinear", table)
            if failures:
                found.different += 1
                found.note(f"round {seed}: the device has pixels, and the processor refuses: {failures}")
            else:
                found.add(f"round {seed}", expected, row[None])


def _regions(image: bytes, seed: int) -> Iterator[tuple[int, int, int, int]]:
    return (case.region for case in cases_of(image, seed, count=1))


if __name__ == "__main__":
    run_stage(run)
