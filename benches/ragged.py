"""Claim: boxes are collated five times as fast as by a plain ``detection_collate``, and moved ten times as fast.

Collation: 64 samples with 0 to 24 boxes, labels and difficult flags; images are left out on both sides. Each form of
``StoreDataset(batch_form=...)`` is made from what ops have left of chunks of 32 samples, one array for each field and
lengths, up to the tensors that a training loop gets. The rivals make the same from the samples: the classic
``detection_collate`` from lists of numbers, as SSD's datasets return them, and from arrays; ultralytics' formatting and
``collate_fn``; and a tensor over each array of each sample, in dicts, where nothing is computed. That one is faster
than the flat arrays: these are made to be sent to another process, pinned and copied to a device as one. All numbers
are compared first. One thread.

Moving: the objects of 32 samples after a crop, a flip and ``SanitizeBoundingBoxes``, from the arrays of records to one
array for each field: a chunk at once, and image by image, as it is done with ops that cannot be applied to a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import arguments, in_turns, machine, ratio, table, versions

from penstock import transforms as T
from penstock.datasets.store.batch_assembly import BatchAssembly
from penstock.datasets.store.batch_forms import BatchForm
from penstock.ragged import RaggedRows, RaggedSpec
from penstock.sample import SampleKeys
from penstock.torch.collate import convert_parts
from penstock.transforms.targets.chunk_targets import Column, move_columns
from penstock.transforms.targets.moved_targets import Moves, Step

BATCH, CHUNK, MOST, REPEATS, SIZE = 64, 32, 24, 400, 640
FIELDS = {"boxes": ((4,), np.float32), "labels": ((), np.int64), "difficult": ((), np.int64)}
Samples = list[dict[str, np.ndarray]]


def make_samples() -> Samples:
    """Objects of one batch."""
    rng = np.random.default_rng(0)
    samples = []
    for count in rng.integers(0, MOST + 1, BATCH).tolist():
        corners = np.sort(rng.random((count, 2, 2), np.float32) * SIZE, axis=1)
        numbers = {"labels": rng.integers(0, 20, count), "difficult": rng.integers(0, 2, count)}
        samples.append({"boxes": corners.reshape(-1, 4), **numbers})
    return samples


def assembly(name: str) -> BatchAssembly:
    """The form for samples of an image and the fields above."""
    fields = ("image", *FIELDS)
    return BatchAssembly(BatchForm(name), fields, dict, "CHW", "image", ("boxes",), "labels", (), tuple(FIELDS))


def ours(samples: Samples, name: str) -> Callable[[], Any]:
    """From what ops have left of chunks to the batch."""
    form, every = assembly(name), np.arange(BATCH)
    images = [np.empty((3, SIZE, SIZE), np.uint8)] if name == "torchvision" else np.empty((1, 3, SIZE, SIZE), np.uint8)
    specs = {field: RaggedSpec(shape, np.dtype(dtype), "flat") for field, (shape, dtype) in FIELDS.items()}
    chunks = []
    for start in range(0, BATCH, CHUNK):
        chunk = samples[start : start + CHUNK]
        lengths = np.array([len(sample["boxes"]) for sample in chunk])
        columns = {field: np.concatenate([sample[field] for sample in chunk]) for field in FIELDS}
        chunks.append((every[start : start + CHUNK], columns, lengths))

    def run() -> Any:
        batch: dict[str, Any] = {"image": images}
        written = {field: RaggedRows(spec, BATCH) for field, spec in specs.items()}
        for places, columns, lengths in chunks:
            for field, values in columns.items():
                written[field].write(places, values, lengths)
        for field, rows in written.items():
            batch[field] = rows.batch(every, np.empty)
        return form.split(convert_parts(form.join(batch)))

    return run


def classic_lists(samples: list[list[list[float]]]) -> list[torch.Tensor]:
    """``detection_collate`` of SSD, RetinaFace and others: a target is a list of lists."""
    return [torch.FloatTensor(sample) if sample else torch.zeros(0, 6) for sample in samples]


def classic_fields(samples: Samples) -> list[torch.Tensor]:
    """``detection_collate`` of a dataset that has boxes, labels and flags as arrays."""
    return [
        torch.from_numpy(
            np.hstack([s["boxes"], s["labels"][:, None], s["difficult"][:, None]]).astype(np.float32, copy=False)
        )
        for s in samples
    ]


def dicts(samples: Samples) -> list[dict[str, torch.Tensor]]:
    """torchvision's targets."""
    return [{name: torch.from_numpy(array) for name, array in sample.items()} for sample in samples]


def ultralytics(samples: Samples) -> dict[str, torch.Tensor]:
    """Each sample as ultralytics' ``Format`` leaves it, then its ``collate_fn``."""
    formatted = []
    for sample in samples:
        boxes = sample["boxes"].copy()
        boxes[:, 2:] -= boxes[:, :2]
        boxes[:, :2] += boxes[:, 2:] / 2
        boxes /= SIZE
        labels = torch.from_numpy(sample["labels"].astype(np.float32)[:, None])
        formatted.append((torch.from_numpy(boxes), labels, torch.zeros(len(boxes))))
    columns = [list(column) for column in zip(*formatted, strict=True)]
    for number, index in enumerate(columns[2]):
        index += number  # noqa: PLW2901  # in place, as ultralytics has it
    return dict(zip(("bboxes", "cls", "batch_idx"), map(torch.cat, columns), strict=True))


def check(candidates: dict[str, Callable[[], Any]]) -> None:
    """All candidates make the same numbers."""
    rows = candidates["penstock, rows"]()[1]
    for name in ("detection_collate, arrays", "detection_collate, lists"):
        for got, want in zip(rows, candidates[name](), strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0)
    for got, want in zip(candidates["penstock, torchvision"]()[1], candidates["targets as dicts"](), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    found, expected = candidates["penstock, ultralytics"](), candidates["ultralytics' collate_fn"]()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)


def moving(samples: Samples) -> dict[str, Callable[[], dict[Any, Column]]]:
    """The objects of a chunk after three ops, by both ways."""
    chunk, ops = samples[:CHUNK], [T.RandomResizedCrop(SIZE), T.HorizontalFlip(), T.SanitizeBoundingBoxes()]
    kinds: dict[Any, str | None] = {"boxes": "boxes", "labels": "int64[*]", "difficult": "int64[*]"}
    keys, sizes = SampleKeys(0, 0, np.arange(CHUNK)), np.full((CHUNK, 2), SIZE, np.int32)
    drawn = [(op, op.draw(keys, sizes, stream), sizes) for stream, op in enumerate(ops)]

    def join(arrays: list[np.ndarray]) -> Column:
        return Column(np.concatenate(arrays), np.fromiter(map(len, arrays), np.int64, len(arrays)))

    def together() -> dict[Any, Column]:
        columns = {name: join([sample[name] for sample in chunk]) for name in FIELDS}
        return move_columns(columns, kinds, ["boxes"], "boxes", drawn) or {}

    def one_by_one() -> dict[Any, Column]:
        moved: dict[str, list[np.ndarray]] = {name: [] for name in FIELDS}
        for i, sample in enumerate(chunk):
            steps = [Step(op, params[i], (SIZE, SIZE)) for op, params, _ in drawn]
            moves = Moves(steps, sample["boxes"])
            for name, arrays in moved.items():
                arrays.append(moves.move(name, kinds[name], sample[name]))
        return {name: join(arrays) for name, arrays in moved.items()}

    return {"image by image": one_by_one, "a chunk at once": together}


def repeat(run: Callable[[], Any], count: int) -> Callable[[], float]:
    """A candidate that runs often enough to be measured."""

    def measure() -> float:
        for _ in range(count):
            run()
        return count

    return measure


def main() -> None:
    """Compare, measure and print."""
    options = arguments(__doc__, rounds=9)
    torch.set_num_threads(1)
    samples = make_samples()
    lists = [
        [[*box, label, flag] for box, label, flag in zip(*(s[name].tolist() for name in FIELDS), strict=True)]
        for s in samples
    ]
    candidates: dict[str, Callable[[], Any]] = {
        "detection_collate, lists": lambda: classic_lists(lists),
        "detection_collate, arrays": lambda: classic_fields(samples),
        "penstock, rows": ours(samples, "rows"),
        "ultralytics' collate_fn": lambda: ultralytics(samples),
        "penstock, ultralytics": ours(samples, "ultralytics"),
        "targets as dicts": lambda: dicts(samples),
        "penstock, torchvision": ours(samples, "torchvision"),
    }
    check(candidates)

    timings = in_turns(
        {name: repeat(run, REPEATS) for name, run in candidates.items()}, rounds=options.rounds, unit="batches/s"
    )
    boxes = sum(len(sample["boxes"]) for sample in samples)
    print("### Ragged arrays of a batch, without images\n")
    print(f"{BATCH} samples, {boxes} boxes; {machine()}; {versions('penstock-data', 'numpy', 'torch')}.\n")
    print(table(timings, against="detection_collate, lists"))
    print()
    for rival, own in (
        ("detection_collate, lists", "penstock, rows"),
        ("detection_collate, arrays", "penstock, rows"),
        ("ultralytics' collate_fn", "penstock, ultralytics"),
        ("targets as dicts", "penstock, torchvision"),
    ):
        middle, low, high = ratio(timings[own], timings[rival])
        print(f"- {own}: {middle:.2f} times {rival} ({low:.2f} - {high:.2f})")

    ways = moving(samples)
    apart, together = (run() for run in ways.values())
    for name, (values, lengths) in apart.items():
        np.testing.assert_array_equal(together[name].values, values, strict=True)
        np.testing.assert_array_equal(together[name].lengths, lengths)
    often = {name: repeat(run, REPEATS // 8) for name, run in ways.items()}
    print(f"\n### Objects of {CHUNK} images after a crop, a flip and SanitizeBoundingBoxes\n")
    print(table(in_turns(often, rounds=options.rounds, unit="chunks/s"), against="image by image"))


if __name__ == "__main__":
    main()
