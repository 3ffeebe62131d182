"""What each rank does in ``test_training.py``: ``torchrun -m tests.distributed.training TASK FOLDER``.

``python -m tests.distributed.training TASK FOLDER RANKS`` forks the ranks, which then import torch once together.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import penstock as ps
import penstock.torch as pt

__all__ = ["EPOCHS", "HANGS_S", "N", "Points", "make_samplers", "train"]

N: Final = 96
EPOCHS: Final = 2
_STEP: Final = 12
"""Samples of all ranks in a step: 2, 3 and 4 ranks take the same steps as one."""
_SAVED_AT, _KILLED_AT = 3, 5
HANGS_S: Final = 180
"""A rank that runs for so long hangs, and writes where each of its threads is to standard error."""


class Points(torch.utils.data.Dataset[Any]):
    """Inputs, targets and indices."""

    def __init__(self, n: int = N) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        x = torch.tensor([index % 7, index % 5, index % 3], dtype=torch.float32) / 7
        return x, x.sum() + index / self.n, index


def make_samplers(num_replicas: int, rank: int) -> dict[str, Any]:
    """Samplers of one rank: no number of ranks here divides what they have."""
    sizes = np.arange(97) * 31 % 17
    ranks: dict[str, Any] = {"num_replicas": num_replicas, "rank": rank, "seed": 5}
    return {
        "distributed": ps.DistributedSampler(range(97), num_replicas, rank, seed=5),
        "weighted": ps.DistributedWeightedSampler(1 + sizes, 97, **ranks),
        "class-balanced": ps.ClassBalancedSampler(sizes, 97, **ranks),
        "repeat-factor": ps.RepeatFactorSampler(sizes, 0.07, **ranks),
        "buckets": ps.BucketBatchSampler(sizes, 4, num_buckets=3, run_length=12, **ranks),
    }


def make_model(*, is_wrapped: bool) -> Any:
    """A model, the same on each rank."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    return DistributedDataParallel(model) if is_wrapped else model


def take_step(model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    """One step of training."""
    optimizer.zero_grad()
    ((model(x)[:, 0] - y) ** 2).mean().backward()
    optimizer.step()


def train(folder: Path, *, dies: bool = False) -> dict[str, Any]:
    """Train with both loaders in step; go on from states in ``folder``, of however many ranks.

    States of all ranks are kept for torch's loader, and that of rank 0 alone for the other.
    """
    world = ps.find_world()
    points, size = Points(), _STEP // world.num_replicas
    samplers = [ps.DistributedSampler(points, world.num_replicas, world.rank, seed=3) for _ in range(2)]
    loader: Any = pt.DataLoader(points, size, sampler=samplers[0], num_workers=2, workers="threads", seed=1)
    numbers = ps.DataLoader(ps.ArrayDataset(np.arange(N)), size, sampler=samplers[1], seed=1)
    model = make_model(is_wrapped=dist.is_initialized())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    saved = sorted(folder.glob("state-*.pt"))
    if saved:
        own, first = torch.load(saved[-1 - world.rank]), torch.load(saved[0])
        loader.load_state_dict(own["loader"])
        numbers.load_state_dict(first["numbers"])
        model.load_state_dict(first["model"])
    epochs: list[list[list[int]]] = []
    for _ in range(EPOCHS):
        epochs.append([])
        for (x, y, index), (number,) in zip(loader, numbers, strict=True):
            assert index.tolist() == number.tolist()
            if dies and len(epochs[-1]) == _KILLED_AT and world.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            take_step(model, optimizer, x, y)
            epochs[-1].append(index.tolist())
            if dies and len(epochs[-1]) == _SAVED_AT:
                state = {"loader": loader.state_dict(), "model": model.state_dict(), "seen": epochs[-1]}
                state |= {"numbers": numbers.state_dict()} if world.rank == 0 else {}
                torch.save(state, folder / f"state-{world.rank}.pt")
                dist.barrier()
    return {"epochs": epochs, "weights": [p.flatten().tolist() for p in model.parameters()], "world": asdict(world)}


def train_unevenly() -> dict[str, Any]:
    """Ranks with unequal numbers of steps, under torch's ``Join``."""
    world, points = ps.find_world(), Points(13)
    sampler = ps.DistributedSampler(points, seed=3, drop_last="uneven")
    loader: Any = pt.DataLoader(points, 2, sampler=sampler, seed=1)
    model = make_model(is_wrapped=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    steps = []
    with Join([model]):
        for x, y, index in loader:
            take_step(model, optimizer, x, y)
            steps.append(index.tolist())
    return {"steps": steps, "rank": world.rank, "weights": [p.flatten().tolist() for p in model.parameters()]}


def evaluate() -> list[list[int]]:
    """Rights and samples of all ranks, added up after each step; by each loader."""
    totals = []
    for kind in (pt.DataLoader, ps.DataLoader):
        points = Points(13)
        sampler = ps.DistributedSampler(points, shuffle=False)
        loader: Any = kind(points, 2, sampler=sampler)
        total = torch.zeros(2, dtype=torch.int64)
        for step, (_, _, index) in enumerate(loader):
            is_new = torch.from_numpy(~sampler.find_repeats(2 * step, 2 * step + 2))
            is_right = torch.as_tensor(index) % 3 == 0
            counts = torch.stack([is_right[is_new].sum(), is_new.sum()])
            dist.all_reduce(counts)
            total += counts
        totals.append(total.tolist())
    return totals


def main(task: str, folder: Path, init_method: str = "env://") -> None:
    """Do a task and keep what came of it."""
    faulthandler.dump_traceback_later(HANGS_S)
    before = ps.find_world()
    dist.init_process_group("gloo", init_method, world_size=before.num_replicas, rank=before.rank)
    result: dict[str, Any] = {"before": asdict(before)}
    try:
        if task == "all":
            samplers = make_samplers(before.num_replicas, before.rank)
            result["orders"] = {name: list(sampler) for name, sampler in samplers.items()}
            result["train"] = train(folder)
            result["uneven"] = train_unevenly()
            result["evaluate"] = evaluate()
        elif task == "die":
            result["train"] = train(folder / "none")
            _keep(folder, result, before.rank)
            dist.barrier()
            train(folder, dies=True)
        else:
            result["train"] = train(folder)
            result["evaluate"] = evaluate()
        _keep(folder, result, before.rank)
    finally:
        dist.destroy_process_group()


def _keep(folder: Path, result: dict[str, Any], rank: int) -> None:
    (folder / f"result-{rank}.json").write_text(json.dumps(result))


def _fork(task: str, folder: Path, ranks: int) -> int:
    """Start ranks with torchrun's variables; 0 if all come to their end. Where one does not, the others are ended.

    Ranks find each other by a file: a port that was free may be another program's when rank 0 serves there.
    """
    importlib.import_module("torch._dynamo")  # by DDP; for all ranks at once
    os.environ.update(WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    context, processes = multiprocessing.get_context("fork"), []
    for rank in range(ranks):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        processes.append(context.Process(target=main, args=(task, folder, f"file://{folder / f'{task}-ranks'}")))
        processes[-1].start()
    running = processes
    while running and not any(process.exitcode for process in processes):
        sentinels = [process.sentinel for process in running]  # never none, which would be waited for without end
        if not multiprocessing.connection.wait(sentinels, HANGS_S + 20):
            break
        running = [process for process in running if process.exitcode is None]
    codes = [process.exitcode for process in processes]  # None: it has not ended
    for process in processes:
        process.kill()
        process.join()
    sys.stderr.write(f"ranks ended with {codes}\n")
    return int(any(code != 0 for code in codes))


if __name__ == "__main__":
    if sys.argv[3:]:
        sys.exit(_fork(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
    main(sys.argv[1], Path(sys.argv[2]))
