"""Read an LMDB environment, an HDF5 file and tar shards of other programs in place, and
train on one of them.
"""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path

import h5py
import lmdb
import numpy as np
import torch
from torch import nn

import penstock as ps
from penstock import transforms as T
from penstock.demo.photographs import write_photographs
from penstock.torch import DataLoader

AUGMENT = [
    T.Decode(),
    T.RandomResizedCrop(64, scale=(0.3, 1.0)),
    T.HorizontalFlip(),
    T.ToLayout("CHW", "float32"),
]


def write_containers() -> int:
    """Write the three as scripts of other projects do, and return the number of
    classes; remove it if you have one.
    """
    folder = (
        write_photographs(Path("photographs"), train=24, held_out=0, sides=(100, 160))
        / "train"
    )
    classes = sorted(path.name for path in folder.iterdir())
    images = [
        path.read_bytes()
        for name in classes
        for path in sorted((folder / name).iterdir())
    ]
    labels = [
        label for label, name in enumerate(classes) for _ in (folder / name).iterdir()
    ]
    with (
        lmdb.open("set.lmdb", map_size=1 << 28) as environment,
        environment.begin(write=True) as transaction,
    ):
        for number, pair in enumerate(zip(images, labels, strict=True)):
            transaction.put(b"%d" % number, pickle.dumps(pair))
        transaction.put(
            b"__keys__", pickle.dumps([b"%d" % number for number in range(len(images))])
        )
        transaction.put(b"__len__", pickle.dumps(len(images)))
    with h5py.File("set.h5", "w") as file:
        encoded = [np.frombuffer(image, np.uint8) for image in images]
        file.create_dataset("images", data=encoded, dtype=h5py.vlen_dtype(np.uint8))
        file.create_dataset("labels", data=labels)
    for shard in range(4):
        with tarfile.open(f"set-{shard:03}.tar", "w") as archive:
            for number in range(
                shard * len(images) // 4, (shard + 1) * len(images) // 4
            ):
                for suffix, content in (
                    ("jpg", images[number]),
                    ("cls", b"%d" % labels[number]),
                ):
                    member = tarfile.TarInfo(f"{number:06}.{suffix}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    return len(classes)


def main() -> None:
    """Open each, compare their batches, train."""
    classes = write_containers()
    stores = [ps.open(path) for path in ("set.lmdb", "set.h5", "set-{000..003}.tar")]
    loaders: list[DataLoader[tuple[torch.Tensor, torch.Tensor]]] = []
    for store in stores:
        print(f"{store.url.rpartition('/')[2]:20} {store.description}")
        dataset = ps.StoreDataset(store, ("image", "label"), AUGMENT)
        loaders.append(
            DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2, seed=0)
        )
    same = [
        all(torch.equal(batch[0], one[0][0]) for batch in one)
        for one in zip(*loaders, strict=True)
    ]
    print(f"{sum(same)} of {len(same)} batches are the same from all three")

    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2),
        nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for epoch in range(6):
        losses: list[float] = []
        for images, labels in loaders[0]:
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")


if __name__ == "__main__":
    main()
