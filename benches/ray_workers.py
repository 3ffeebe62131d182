"""Claim: actors of Ray cost little more than worker processes, and a second node with a core gives almost its share.

T1 (photographs, RandomResizedCrop 224, flip, normalise, float32 CHW, batch 64), two workers that persist.

overhead  actors on this machine against processes, by epochs of T1, and of samples that cost nothing (ms per batch)
nodes     two raylets with one CPU each, a worker on each, against one such node; the trainer is on a third without
          CPUs; photographs of 8 megapixels, so that decoding is the limit
data      ``ray.data`` with the same dataset in two actors, by ``iter_torch_batches``, against penstock's loader on Ray
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from harness import Timing, arguments, images_folder, in_turns, machine, ratio, table, versions
from PIL import Image

import penstock as ps
import penstock.torch
from penstock import transforms as T

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: as little as the machine has beside others
BATCH = 64
STORE_NBYTES = 2_000_000_000
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Plain:
    """Samples of T1's size that cost nothing."""

    def __len__(self) -> int:
        return 64 * BATCH

    def __getitem__(self, index: int) -> Any:
        return np.full((3, 224, 224), index, np.float32)


def photographs(folder: Any) -> Any:
    """T1, each photograph eight times: an epoch takes seconds."""
    last = [T.HorizontalFlip(), T.Normalize(MEAN, STD), T.ToLayout("CHW", "float32")]
    augment = [T.Decode(), T.RandomResizedCrop(224), *last]
    return ps.ConcatDataset([ps.StoreDataset(ps.open(folder), fields=("image", "label"), transform=augment)] * 8)


def parts(batch: Any) -> list[Any]:
    """The tensors of a batch."""
    return (
        list(batch.values()) if isinstance(batch, dict) else list(batch) if isinstance(batch, tuple | list) else [batch]
    )


def epoch(loader: Any) -> Callable[[], float]:
    """A candidate: one epoch; the number of images."""

    def run() -> float:
        return float(sum(len(parts(batch)[0]) for batch in loader))

    return run


def make_loader(dataset: Any, workers: Any, num_workers: int = 2, batch_size: int = BATCH) -> Any:
    """A loader whose workers persist."""
    return penstock.torch.DataLoader(
        dataset, batch_size, shuffle=True, seed=0, num_workers=num_workers, workers=workers, persistent_workers=True
    )


def check_same(first: Any, second: Any) -> None:
    """Both give the same batches."""
    for a, b in zip(first, second, strict=True):
        for one, other in zip(parts(a), parts(b), strict=True):
            assert (one == other).all(), "batches differ"


@contextmanager
def cluster(*cpus: int) -> Iterator[Any]:
    """Ray with one node for each number of CPUs; the trainer is on the first."""
    import ray
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        node = {"object_store_memory": STORE_NBYTES}
        made = Cluster(
            initialize_head=True,
            head_node_args={**node, "num_cpus": cpus[0], "include_dashboard": False, "temp_dir": folder},
        )
        for count in cpus[1:]:
            made.add_node(num_cpus=count, **node)
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield ray
        finally:
            ray.shutdown()
            made.shutdown()


def overhead(dataset: Any, rounds: int) -> None:
    """Actors against processes."""
    with cluster(2):
        for name, data in (("T1", dataset), ("samples that cost nothing", Plain())):
            loaders = {kind: make_loader(data, kind) for kind in ("processes", "ray")}
            check_same(*loaders.values())
            timings = in_turns(
                {kind: epoch(loader) for kind, loader in loaders.items()}, rounds=rounds, unit="images/s"
            )
            per_batch = {kind: BATCH / timing.median * 1e3 for kind, timing in timings.items()}
            print(f"### {name}\n\n{table(timings, against='processes')}\n")
            print(f"A batch takes {per_batch['ray'] - per_batch['processes']:.2f} ms more.\n")
            for loader in loaders.values():
                loader.close()


def enlarge(store: Any) -> Any:
    """A pack of 64 photographs of 8 megapixels."""
    folder = Path(tempfile.mkdtemp(prefix="large"))
    for number, record in enumerate(store.read(list(range(64)))):
        picture = Image.open(io.BytesIO(record.fields["image"])).convert("RGB").resize((3264, 2448))
        (folder / "photos" / str(number % 4)).mkdir(parents=True, exist_ok=True)
        picture.save(folder / "photos" / str(number % 4) / f"{number}.jpg", quality=90)
    ps.pack(folder / "photos", folder / "large.lmdb")
    return ps.open(folder / "large.lmdb")


def nodes(dataset: Any, rounds: int) -> None:
    """One node with one CPU against two, where decoding is the limit: 8 megapixels each, uint8 batches of 2.4 MB."""
    store = enlarge(dataset.datasets[0].store)
    whole = [T.Decode(), T.RandomResizedCrop(224, scale=(0.5, 1.0))]
    dataset = ps.ConcatDataset([ps.StoreDataset(store, fields=("image", "label"), transform=whole)] * 24)
    workers = ps.RayWorkers(num_cpus=0.5)  # so that both loaders have room
    with cluster(0, 1, 1) as ray:
        loaders = {f"{count} node(s)": make_loader(dataset, workers, count, 16) for count in (1, 2)}
        check_same(*loaders.values())
        places = {tuple(sorted(node["NodeID"] for node in ray.nodes() if node["Alive"]))}
        timings = in_turns({name: epoch(loader) for name, loader in loaders.items()}, rounds=rounds, unit="images/s")
        print(f"### Nodes ({len(next(iter(places)))} raylets)\n\n{table(timings, against='1 node(s)')}\n")


def ray_data(dataset: Any, rounds: int) -> None:
    """Ray Data's batches of the same samples."""
    with cluster(8) as ray:  # Ray Data also reserves CPUs for reading
        ray.data.DataContext.get_current().enable_progress_bars = False

        class Decode:
            def __init__(self) -> None:
                self.dataset = dataset

            def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
                samples = [self.dataset[int(index)] for index in batch["id"]]
                images, labels = zip(*samples, strict=True)
                return {"image": np.stack(images), "label": np.array(labels)}

        def run() -> float:
            decoded = ray.data.range(len(dataset)).map_batches(Decode, batch_size=BATCH, concurrency=2)
            return float(sum(len(batch["image"]) for batch in decoded.iter_torch_batches(batch_size=BATCH)))

        loader = make_loader(dataset, "ray")
        timings: dict[str, Timing] = in_turns(
            {"ray.data": run, "penstock": epoch(loader)}, rounds=rounds, unit="images/s"
        )
        print(f"### Ray Data\n\n{table(timings, against='ray.data')}\n")
        middle, low, high = ratio(timings["penstock"], timings["ray.data"])
        print(f"penstock / ray.data: {middle:.2f} ({low:.2f} - {high:.2f}).\n")


TASKS = {"overhead": overhead, "nodes": nodes, "data": ray_data}


def main() -> None:
    """Measure and print."""
    given = arguments(__doc__ or "", rounds=7, tasks=tuple(TASKS))
    warnings.simplefilter("ignore")
    dataset = photographs(images_folder(given.images))
    print(f"{len(dataset)} photographs; {machine()}; {versions('penstock-data', 'ray', 'numpy', 'torch')}.\n")
    for task in given.tasks:
        TASKS[task](dataset, given.rounds)


if __name__ == "__main__":
    main()
