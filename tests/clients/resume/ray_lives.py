"""What ``test_ray_train.py`` starts: ``python ray_lives.py FOLDER`` runs each case in one session of Ray.

Workers that are killed are started again by Ray, in the same ``fit``. On another number of ranks a new ``fit`` has the
same name and storage, and finds the last checkpoint.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import penstock as ps
import penstock.torch as pt
from penstock.torch.resume import load_loader, save_loader
from tests.clients.harness import Net, Samples, seed
from tests.clients.resume.lives import Case, Life, Log

__all__ = ["CASES", "ELASTIC", "LIVES", "find_log", "whole"]

CASES = {"one": Case(workers=2, accumulation=2), "two": Case(ranks=2, drop_last=True)}
"""Workers are killed twice."""

LIVES = [Life(0, 2, 3), Life(2, 6, 7), Life(6)]

ELASTIC = [
    (Case(ranks=2, batch=6, workers=2, samples=48), Life(0, 2, 3)),
    (Case(ranks=3, batch=4, workers=2, samples=48), Life(2)),
]
"""Two ranks, and then three."""


def find_log(folder: Path, resume: int, rank: int) -> Path:
    """What a rank has noted that went on after so many batches."""
    return folder / f"{resume}-{rank}.log"


def train(log: Log, case: Case, life: Life, rank: int, checkpoint: Any, report: Any) -> None:
    """The loop of one rank."""
    seed(17 + life.resume)
    dataset = Samples(case.samples)
    more: dict[str, Any] = {"seed_per_sample": True, "seed": 6} if case.samples == 48 else {}
    loader = pt.DataLoader(
        dataset, case.batch, sampler=ps.DistributedSampler(dataset, case.ranks, rank, seed=2),
        num_workers=case.workers, drop_last=case.drop_last, **more,
    )  # fmt: skip
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    first = 0
    if life.resume:
        with checkpoint as folder:
            load_loader(loader, folder)
            parts = torch.load(Path(folder, "net.pt"))
            net.load_state_dict(parts["net"])
            optimizer.load_state_dict(parts["optimizer"])
            first = parts["epoch"]
    model: Any = torch.nn.parallel.DistributedDataParallel(net) if case.ranks > 1 else net
    for epoch in range(first, case.epochs):
        for batch in loader:
            log.batch(batch)
            loss: Any = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
            loss.backward()
            log.loss(loss)
            if log.batches % case.accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
            if log.saves():
                with tempfile.TemporaryDirectory() as folder:
                    save_loader(loader, folder)
                    if rank == 0:
                        parts = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
                        torch.save({**parts, "batches": log.batches, "epoch": epoch}, Path(folder, "net.pt"))
                    report(folder)
            log.may_die()
    if (
        case.workers
    ):  # a loader with workers has torch's generator of the program in its state; the loop draws from no other
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002  # the global one is meant
    log.end(net)


def whole(log: Log, _: Path, case: Case, life: Life) -> None:
    """The same without Ray: nobody is killed."""
    if case.ranks > 1:
        dist.init_process_group("gloo")
    train(log, case, life, ps.find_world().rank, nullcontext(), None)


def train_on_ray(config: dict[str, Any]) -> None:
    """A training function as Ray's documentation has it."""
    import ray.train

    def report(folder: str) -> None:
        ray.train.report({}, checkpoint=ray.train.Checkpoint.from_directory(folder))
        ray.train.get_all_reported_checkpoints()  # a worker that dies sooner takes its report with it

    torch.set_num_threads(1)
    rank, checkpoint, resume = ray.train.get_context().get_world_rank(), ray.train.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            resume = torch.load(Path(folder, "net.pt"))["batches"]
    case, lives = Case(**config["case"]), [Life(**life) for life in config["lives"]]
    life = next(life for life in lives if life.resume == resume)
    log = Log(find_log(Path(config["folder"]), resume, rank), case, life)
    train(log, case, life, rank, None if checkpoint is None else checkpoint.as_directory(), report)


def main(folder: Path) -> None:
    """Run all, one after the other."""
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "200"  # on a busy machine, it would end workers that start
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def fit(name: str, case: Case, lives: list[Life], restarts: int) -> None:
        (folder / name).mkdir(exist_ok=True)
        config = {"case": asdict(case), "lives": [asdict(life) for life in lives], "folder": str(folder / name)}
        run = RunConfig(
            name=name, storage_path=str(folder / "results"), failure_config=FailureConfig(max_failures=restarts)
        )
        scaling = ScalingConfig(num_workers=case.ranks)
        TorchTrainer(train_on_ray, train_loop_config=config, scaling_config=scaling, run_config=run).fit()

    ray.init("local", num_cpus=3, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
    for name, case in CASES.items():
        fit(name, case, LIVES, restarts=2)
    for case, life in ELASTIC:
        try:
            fit("elastic", case, [life], restarts=0)
        except ray.train.WorkerGroupError:
            if not life.kill:
                raise
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
