"""A training script with torch, as users type it; see numpy_batches.py."""

from __future__ import annotations

from typing import Any, assert_type

import torch
import torch.utils.data
from torch import Tensor, nn

import penstock as ps
import penstock.torch as pt
from penstock import transforms as T
from penstock.torch import DataLoader

Pair = tuple[Tensor, Tensor]


class Pairs(torch.utils.data.Dataset[Pair]):
    """Tensors."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Pair:
        return torch.zeros(3, 4, 4), torch.tensor(index)


class Photos(pt.Dataset[tuple[Tensor, int]]):
    """A picture and its class."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(3, 4, 4), index


class Boxes(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Tensors by name."""

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"boxes": torch.zeros(1, 4)}


def join(samples: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    """A ``collate_fn``."""
    return {"images": torch.stack([image for image, _ in samples])}


def train(loader: DataLoader[Pair], model: nn.Module) -> None:
    """An annotation as for torch's loader."""
    for images, labels in loader:
        print(model(images.cuda(non_blocking=True)), labels.shape)


def train_with_any_loader(loader: torch.utils.data.DataLoader[Any]) -> int:
    """A function that takes torch's loader."""
    return len(loader)


def batches_have_the_types_of_samples() -> None:
    """The batch type is that of the samples, or what ``collate_fn`` returns."""
    loader = DataLoader(Pairs(), batch_size=4, shuffle=True, num_workers=2, pin_memory=True)
    assert_type(loader, DataLoader[Pair])
    train(loader, nn.Identity())
    train(DataLoader(Photos(), 4), nn.Identity())
    annotated: DataLoader[Pair] = DataLoader(Pairs(), 4)
    train_with_any_loader(annotated)
    for batch in DataLoader(Photos(), 4):
        assert_type(batch, Pair)
    for named in DataLoader(Boxes(), 4):
        assert_type(named, dict[str, Tensor])
    for joined in DataLoader(Photos(), 4, collate_fn=join):
        assert_type(joined, dict[str, Tensor])
    assert_type(DataLoader(Photos(), None), DataLoader[Any])
    part = torch.utils.data.Subset(Pairs(), [0, 1])
    for images, labels in DataLoader(part, 2):
        print(images.shape, labels.shape)


def a_whole_run(folder: str) -> None:
    """A folder of images, a store, a device, a state."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    store = ps.open(folder)
    augment = T.Pipeline([T.Decode(), T.RandomResizedCrop(224), T.ToLayout("CHW", "float32")])
    dataset = pt.StoreDataset(store, ("image", "label"), augment)
    loader = DataLoader(dataset, 64, shuffle=True, num_workers=8, seed=1, overlap_epochs=True, persistent_workers=True)
    for images, labels in pt.prefetch(loader, device):
        print(images, labels)
    train_with_any_loader(loader)
    state = loader.state_dict()
    loader.load_state_dict(state)
    adopted = pt.adopt(torch.utils.data.DataLoader(Pairs(), 4))
    print(loader.stats(), adopted, pt.check(loader))
    for batch in pt.StatefulDataLoader(pt.ImageFolder(folder), 2):
        print(batch)
