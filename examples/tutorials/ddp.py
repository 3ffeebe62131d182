"""Train on several ranks with DistributedDataParallel: each sample once an epoch, and
one state for all ranks.

::

    torchrun --standalone --nproc-per-node 2 ddp.py
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import penstock as ps
from penstock import transforms as T
from penstock.demo.photographs import write_photographs
from penstock.torch import DataLoader

DATA = Path("photographs")  # yours: Path("your/folder")
STATE = Path("loader.json")
AUGMENT = [
    T.Decode(), T.RandomResizedCrop(64, scale=(0.3, 1.0)), T.HorizontalFlip(),
    T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32"),
]  # fmt: skip


def main() -> None:
    """Join the other ranks, train, count what all ranks were given, and stop and
    continue.
    """
    dist.init_process_group("gloo")  # "nccl" on GPUs
    world = ps.find_world()
    if world.rank == 0:
        write_photographs(DATA, train=24, held_out=0, sides=(100, 160))
        ps.pack(DATA / "train", "train.lmdb")
    dist.barrier()  # the pack is there
    dataset = ps.StoreDataset("train.lmdb", ("image", "label", "index"), AUGMENT)
    loader = DataLoader(
        dataset,
        16,
        sampler=ps.DistributedSampler(dataset, seed=0),
        num_workers=1,
        seed=0,
    )
    torch.manual_seed(0)
    network = DistributedDataParallel(
        nn.Sequential(
            nn.Conv2d(3, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2), nn.BatchNorm2d(32),
            nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 11),
        )
    )  # fmt: skip
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for epoch in range(5):
        seen = torch.zeros(len(dataset), dtype=torch.int64)
        total = torch.zeros(())
        for step, (images, labels, index) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.index_add_(0, index, torch.ones_like(index))
            total += loss.detach() / len(loader) / world.num_replicas
            if epoch == 4 and step == 3 and world.rank == 0:
                STATE.write_text(
                    json.dumps(loader.state_dict())
                )  # one rank's state serves all
        dist.all_reduce(seen)
        dist.all_reduce(total)
        if world.rank == 0:
            once = int((seen == 1).sum())
            print(
                f"epoch {epoch + 1}: {len(loader)} steps, loss {total:.3f}, {once} "
                f"of {len(seen)} images once"
            )

    dist.barrier()
    loader.load_state_dict(json.loads(STATE.read_text()))
    rest = torch.zeros(len(dataset), dtype=torch.int64)
    for _, _, index in loader:
        rest.index_add_(0, index, torch.ones_like(index))
    dist.all_reduce(rest)
    if world.rank == 0:
        print(
            f"resumed after step 3 of epoch 5: {int(rest.sum())} images remain on "
            f"{world.num_replicas} ranks"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
