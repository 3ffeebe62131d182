"""What the loops of a job's ranks share: a loader whose order all ranks compute, and sizes of what it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import penstock as ps
import penstock.torch as pt
from tests.clients.harness import Samples
from tests.clients.resume.lives import Case, Log, Noted

__all__ = ["count", "end", "join", "make_loader", "order_of_job"]


def join(case: Case) -> None:
    """Begin the process group; of one rank too."""
    store = dist.HashStore() if case.ranks == 1 else None  # type: ignore[attr-defined]  # torch exports it
    dist.init_process_group("gloo", store=store, rank=0 if store else -1, world_size=1 if store else -1)


def make_loader(case: Case, **more: Any) -> Any:
    """A loader of one rank, in an order that all of them compute."""
    samples, world = Samples(case.samples), ps.find_world()
    sampler = ps.DistributedSampler(samples, world.num_replicas, world.rank, seed=7, drop_last=case.drop_last)
    return pt.DataLoader(
        samples, case.batch, sampler=sampler, num_workers=case.workers, drop_last=case.drop_last, **more
    )


def end(log: Log, model: torch.nn.Module) -> None:
    """The weights, and the next number of torch's generator, which loaders put back; of others none draws here."""
    log.note("weights", dict(model.state_dict()))
    log.note("generator", torch.rand(()))


def count(case: Case) -> int:
    """Batches of a rank in an epoch."""
    samples = case.samples // case.ranks if case.drop_last else -(-case.samples // case.ranks)
    return samples // case.batch if case.drop_last else -(-samples // case.batch)


def order_of_job(ranks: list[Noted]) -> list[tuple[bytes, int]]:
    """The samples that all ranks were given, in the order of the job: each rank has every so-and-so-many-th."""
    given = [[row for word, value in noted if word == "batch" for row in _rows(value)] for noted in ranks]
    return [row for turn in zip(*given, strict=True) for row in turn]


def _rows(frozen: Any) -> list[tuple[bytes, int]]:
    """Every bit of the samples of a batch, and their indices."""
    numbers, _, indices = frozen[1] if isinstance(frozen[0], str) else frozen
    rows = np.frombuffer(numbers[3], np.float32).reshape(-1, 4)
    return [(row.tobytes(), int(index)) for row, index in zip(rows, np.frombuffer(indices[3], np.int64), strict=True)]
