"""Claim: millions of tiny patches are packed at 200,000 records/s and loaded five times as fast as from LMDB by key.

3,000,000 records (``--records``): 12 x 12 x 3 pixels, a label, a box and five landmarks. Packed from arrays in memory,
and measured on disk, against their raw bytes. Loaded in batches of 512, shuffled, normalised to ``(x - 127.5) / 128``
as float32 CHW, 2 workers: a usual PyTorch dataset that reads an LMDB by key (``i``: pixels; ``i_``: text
"label,box,landmarks"), penstock's two loaders from the pack, and penstock from a pack of the same patches as JPEG
(quality 95). The candidates run in turns, one epoch a round; first, a batch of each is compared with the arrays. The
plain dataset and the JPEGs have ``--rivals`` records, since an epoch of them takes minutes.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import torch
from harness import in_turns, machine, ratio, table, versions
from PIL import Image

import penstock as ps
import penstock.torch
from penstock import transforms as T
from penstock.sample import Field, Schema
from penstock.stores.lmdb_pack.writer import LmdbWriter

BATCH, WORKERS, APPENDED = 512, 2, 8192
PIXELS = Schema(
    {
        "image": Field("pixels:uint8[12,12,3]"),
        "label": Field("label"),
        "box": Field("float32[4]"),
        "landmarks": Field("float32[10]"),
    }
)
JPEGS = Schema({**PIXELS.fields, "image": Field("image")})
Arrays = dict[str, np.ndarray]


def make_arrays(count: int) -> Arrays:
    """Smooth patches, since noise cannot be compressed as JPEG, and the numbers of detectors of faces."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 256, (64, 36, 36, 3), np.uint8)
    smooth = np.stack([Image.fromarray(each).resize((256, 256), Image.Resampling.BICUBIC) for each in base])
    pictures, tops, lefts = rng.integers(0, 64, count), *rng.integers(0, 244, (2, count))
    windows = np.lib.stride_tricks.sliding_window_view(smooth, (12, 12), axis=(1, 2))
    images = np.empty((count, 12, 12, 3), np.uint8)
    for begin in range(0, count, 100_000):
        part = slice(begin, begin + 100_000)
        images[part] = windows[pictures[part], tops[part], lefts[part]].transpose(0, 2, 3, 1)
    numbers = rng.random((count, 14), np.float32).round(4)
    return {
        "image": images,
        "label": rng.integers(-1, 3, count),
        "box": numbers[:, :4].copy(),
        "landmarks": numbers[:, 4:].copy(),
    }


def pack(path: Path, arrays: Arrays) -> float:
    """Pack the arrays; return the seconds."""
    count = len(arrays["label"])
    begun = time.perf_counter()
    writer = LmdbWriter(path, PIXELS, "patches")
    for begin in range(0, count, APPENDED):
        end = min(begin + APPENDED, count)
        keys = [str(index) for index in range(begin, end)]
        writer.append_batch(writer.prepare_batch(keys, {name: values[begin:end] for name, values in arrays.items()}))
    writer.finish()
    return time.perf_counter() - begun


def pack_jpegs(path: Path, arrays: Arrays) -> None:
    """Pack the same records with encoded images."""
    writer = LmdbWriter(path, JPEGS, "jpegs")
    for index, image in enumerate(arrays["image"]):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=95)
        fields = {name: arrays[name][index] for name in ("box", "landmarks")}
        label = int(arrays["label"][index])
        writer.append(writer.prepare(str(index), {**fields, "label": label, "image": file.getvalue()}))
    writer.finish()


def write_by_key(path: Path, arrays: Arrays) -> None:
    """The LMDB of a usual script: two entries for each record."""
    with lmdb.open(str(path), map_size=1 << 36) as environment, environment.begin(write=True) as transaction:
        for index, (image, label, box, landmarks) in enumerate(zip(*arrays.values(), strict=True)):
            text = ",".join([str(label), *(f"{number:.4f}" for number in (*box, *landmarks))])
            transaction.put(f"{index}".encode(), image.tobytes())
            transaction.put(f"{index}_".encode(), text.encode())


class ByKey(torch.utils.data.Dataset):
    """A usual PyTorch dataset over that LMDB."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = str(path), count
        self.environment: lmdb.Environment | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, torch.Tensor, torch.Tensor]:
        if self.environment is None:
            self.environment = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        with self.environment.begin() as transaction:
            pixels = transaction.get(f"{index}".encode())
            label, *numbers = transaction.get(f"{index}_".encode()).decode().split(",")
        image = np.frombuffer(pixels, np.uint8).reshape(12, 12, 3)
        image = (image.astype(np.float32).transpose(2, 0, 1) - 127.5) / 128
        values = torch.tensor([float(number) for number in numbers])
        return torch.from_numpy(image), int(label), values[:4], values[4:]


def dataset(path: Path) -> ps.StoreDataset:
    """penstock's dataset of a pack; the same pipeline for pixels and JPEGs."""
    ops = [T.Decode(), T.Normalize(127.5 / 255, 128 / 255), T.ToLayout("CHW", "float32")]
    fields = ("image", "label", "box", "landmarks")
    return ps.StoreDataset(path, fields, transform=ops, kinds={"box": None, "landmarks": None})


def check(name: str, loader: object, arrays: Arrays, *, exact: bool = True) -> None:
    """Compare the first batch of a loader in order with the arrays."""
    batch = [np.asarray(part) for part in next(iter(loader))]  # type: ignore[call-overload]  # any kind of loader
    images = (arrays["image"][:BATCH].astype(np.float32).transpose(0, 3, 1, 2) - 127.5) / 128
    same = not exact or np.array_equal(batch[0], images)
    for part, field in zip(batch[1:], ("label", "box", "landmarks"), strict=True):
        same = same and bool(np.allclose(part, arrays[field][:BATCH], atol=1e-6))
    if not same:
        raise SystemExit(f"{name}: the batches are not those of the arrays")


def epoch(loader: object) -> Callable[[], float]:
    """A candidate: count the records of one epoch."""

    def run() -> float:
        return sum(len(batch[0]) for batch in loader)  # type: ignore[attr-defined]  # all kinds of loader iterate

    return run


def nbytes(folder: Path) -> int:
    """Bytes on disk."""
    return sum(entry.stat().st_size for entry in folder.iterdir())


def main() -> None:
    """Pack, check, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", help="not used; the other scripts take it")
    parser.add_argument("--rounds", type=int, default=5, help="number of counted rounds of every candidate")
    parser.add_argument("--records", type=int, default=3_000_000, help="records of the pack")
    parser.add_argument("--rivals", type=int, default=200_000, help="records of the others")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*excessive worker creation.*")
    arrays = make_arrays(options.records)
    few = {name: values[: options.rivals] for name, values in arrays.items()}
    raw = sum(values[0].nbytes for values in arrays.values())
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        root = Path(scratch)
        times = [pack(root / f"{turn}.lmdb", arrays) for turn in range(2)]
        write_by_key(root / "by-key", few)
        pack_jpegs(root / "jpegs.lmdb", few)
        torch_dataset = ByKey(root / "by-key", len(few["label"]))
        common = {"batch_size": BATCH, "num_workers": WORKERS}
        torch_options = {**common, "persistent_workers": True, "multiprocessing_context": "fork"}
        check("by key", torch.utils.data.DataLoader(torch_dataset, BATCH), few)
        check("pixels", ps.DataLoader(dataset(root / "0.lmdb"), BATCH), arrays)
        check("JPEG", ps.DataLoader(dataset(root / "jpegs.lmdb"), BATCH), few, exact=False)
        loaders = {
            "torch DataLoader, LMDB by key": torch.utils.data.DataLoader(torch_dataset, shuffle=True, **torch_options),
            "penstock.DataLoader, pixels": ps.DataLoader(dataset(root / "0.lmdb"), shuffle=True, **common),
            "penstock.torch.DataLoader, pixels": penstock.torch.DataLoader(
                dataset(root / "0.lmdb"), shuffle=True, **common
            ),
            "penstock.DataLoader, JPEG": ps.DataLoader(dataset(root / "jpegs.lmdb"), shuffle=True, **common),
        }
        sizes = {name: nbytes(root / name) for name in ("0.lmdb", "by-key", "jpegs.lmdb")}
        candidates = {name: epoch(loader) for name, loader in loaders.items()}
        timings = in_turns(candidates, rounds=options.rounds, unit="records/s")
    count, rivals = options.records, len(few["label"])
    print("### Tiny patches: 12 x 12 x 3 pixels, label, box, landmarks\n")
    print(f"{count:,} records, {rivals:,} of the rivals; {machine()}; ", end="")
    print(versions("penstock-data", "torch", "lmdb", "numpy", "pillow") + ".\n")
    print(f"Packed from arrays: {' and '.join(f'{count / taken:,.0f}' for taken in times)} records/s.\n")
    print("| on disk | bytes a record | of the raw bytes |\n|---|---|---|")
    for name, what, records in (
        ("0.lmdb", "pack of pixels", count), ("by-key", "LMDB by key", rivals), ("jpegs.lmdb", "pack of JPEGs", rivals),
    ):  # fmt: skip
        print(f"| {what} | {sizes[name] / records:,.1f} | {sizes[name] / records / raw:.3f} |")
    print(f"\nBatches of {BATCH}, shuffled, {WORKERS} workers:\n")
    print(table(timings, against="torch DataLoader, LMDB by key"))
    of_jpeg = ratio(timings["penstock.DataLoader, pixels"], timings["penstock.DataLoader, JPEG"])
    print(
        f"\nPixels are loaded {of_jpeg[0]:.1f} ({of_jpeg[1]:.1f} - {of_jpeg[2]:.1f}) times as fast as the same JPEGs."
    )


if __name__ == "__main__":
    main()
