"""One replica of ``test_torchft.py``: ``python -m tests.clients.resume.replica ADDRESS NUMBER LOG STOP KILL``.

It trains until the file STOP is there. Behind each step it writes a line of JSON: the step, the one that comes next,
whether its gradient counts, and the indices and random numbers of its batch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torchft import Manager, Optimizer, ProcessGroupGloo

import penstock as ps
import penstock.torch as pt
from penstock.torch.resume import ReplicaLoader

__all__ = ["make_loader"]

REPLICAS: Final = 2
TIMEOUT: Final = timedelta(seconds=10)


class Drawn(torch.utils.data.Dataset[Any]):
    """An index, and a number that is drawn for it."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index), float(torch.rand(()))])


def make_loader(number: int) -> Any:
    """The loader of a replica: 4 batches an epoch."""
    sampler = ps.DistributedSampler(Drawn(), REPLICAS, number, seed=7)
    return pt.DataLoader(Drawn(), 4, sampler=sampler, num_workers=number, seed=7, seed_per_sample=True)


def train(address: str, number: int, log: Path, stop: Path, kill: int) -> None:
    """Train, and be killed within step ``kill``."""
    store = dist.TCPStore(  # type: ignore[attr-defined]  # torch exports it
        "localhost", 0, is_master=True, wait_for_workers=False
    )
    model = torch.nn.Linear(2, 1)
    manager = Manager(
        ProcessGroupGloo(timeout=TIMEOUT), model.load_state_dict, model.state_dict, min_replica_size=1, timeout=TIMEOUT,
        rank=0, world_size=1, store_addr="localhost", store_port=store.port, lighthouse_addr=address,
        replica_id=f"replica_{number}",
    )  # fmt: skip
    optimizer = Optimizer(manager, torch.optim.SGD(model.parameters(), lr=1e-6))
    batches = ReplicaLoader(make_loader(number), manager)
    with log.open("a", buffering=1) as file:
        while not stop.exists():
            for batch in batches:
                step = manager.current_step()
                optimizer.zero_grad()
                model(batch).mean().backward()
                if step == kill:
                    manager.wait_quorum()  # the other one counts on this one
                    os.kill(os.getpid(), signal.SIGKILL)
                for parameter in model.parameters():
                    manager.allreduce(parameter.grad).wait()
                counts = manager.is_participating()
                optimizer.step()
                ended = manager.current_step()
                line = {"step": step, "ended": ended, "counts": counts, "batch": batch.tolist()}
                file.write(json.dumps(line) + "\n")
                if stop.exists():
                    break
                time.sleep(0.05)
    manager.shutdown(wait=False)
    os._exit(0)  # its threads may wait for the others


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = sys.argv[1:]
    train(given[0], int(given[1]), Path(given[2]), Path(given[3]), int(given[4]))
