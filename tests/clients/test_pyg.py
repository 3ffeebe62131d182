"""PyTorch Geometric: its loaders as subclasses of ours, its collation and wrappers around ours.

NodeLoader and LinkLoader return iterators of their own from ``_get_iterator``. Their usual samplers (NeighborLoader)
need ``pyg-lib`` or ``torch-sparse``, of which no registry has wheels: a sampler written in Python stands for them.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, TemporalData
from torch_geometric.loader import CachedLoader, DynamicBatchSampler, ImbalancedSampler, PrefetchLoader
from torch_geometric.loader.dataloader import Collater
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.sampler import BaseSampler, SamplerOutput

from tests.clients.harness import (
    EPOCHS,
    LOADINGS,
    OURS,
    REPLACED,
    TORCH,
    Loading,
    Recording,
    assert_same,
    modules_over,
    record,
)

LOADER = "torch_geometric.loader."
MODULES = [
    LOADER + "dataloader", LOADER + "node_loader", LOADER + "link_loader", LOADER + "zip_loader",
    LOADER + "random_node_loader", LOADER + "temporal_dataloader", LOADER + "dense_data_loader",
    "torch_geometric.nn.kge.loader",
]  # fmt: skip


def parts(batch: Any) -> Any:
    """A batch of graphs as a mapping, for the recording."""
    return batch.to_dict() if hasattr(batch, "to_dict") else batch


@contextlib.contextmanager
def loaders(way: str) -> Iterator[Any]:
    """The loader classes of PyG by name: over torch's class, or over ours."""
    import importlib

    names = ["DataLoader", "NodeLoader", "LinkLoader", "ZipLoader", "RandomNodeLoader", "TemporalDataLoader",
             "DenseDataLoader", "KGTripletLoader"]  # fmt: skip
    with contextlib.ExitStack() as stack:
        if way == TORCH:
            modules = [importlib.import_module(name) for name in MODULES]
        else:
            modules = stack.enter_context(modules_over(*MODULES))
        yield SimpleNamespace(**{name: getattr(module, name) for name, module in zip(names, modules, strict=True)})


def compared(run: Callable[[Any, Recording], None], batches: int) -> None:
    """The run with PyG's classes over ours, and over torch's."""
    theirs = record(TORCH, lambda _, recording: with_loaders(TORCH, run, recording))
    ours = record(REPLACED, lambda _, recording: with_loaders(REPLACED, run, recording), "torch_geometric")
    assert_same(ours, theirs, batches=batches)


def with_loaders(way: str, run: Callable[[Any, Recording], None], recording: Recording) -> None:
    """One run within :func:`loaders`."""
    with loaders(way) as classes:
        run(classes, recording)


class Graphs(torch.utils.data.Dataset[Any]):
    """26 graphs of 3 to 6 nodes, with features from torch's generator of whoever builds them."""

    def __len__(self) -> int:
        return 26

    def __getitem__(self, index: int) -> Any:
        nodes = 3 + index % 4
        ring = torch.arange(nodes)
        return Data(
            x=torch.rand(nodes, 4),
            edge_index=torch.stack([ring, ring.roll(1)]),
            y=torch.tensor([index % 2]),
            index=index,
        )


class Classifier(torch.nn.Module):
    """One graph convolution and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.head = GCNConv(4, 8), torch.nn.Linear(8, 2)

    def forward(self, batch: Any) -> Any:
        """Logits per graph."""
        hidden = torch.nn.functional.dropout(self.convolution(batch.x, batch.edge_index).relu(), 0.3)
        return self.head(global_mean_pool(hidden, batch.batch))


def train(loader: Any, recording: Recording, epochs: int = EPOCHS) -> None:
    """A graph classifier's training."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for batch in loader:
            recording.note("batch", parts(batch))
            loss: Any = torch.nn.functional.cross_entropy(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recording.note("loss", loss)


def look(loader: Any, recording: Recording, epochs: int = EPOCHS) -> None:
    """Epochs of a loop that draws a random number for each batch."""
    for _ in range(epochs):
        for batch in loader:
            recording.note("batch", parts(batch))
            recording.note("draw", torch.rand(()))


@LOADINGS
@pytest.mark.parametrize("sampler", ["shuffle", "imbalanced"])
def test_a_loader_of_graphs(loading: Loading, sampler: str) -> None:
    """``DataLoader`` over ours trains a classifier; with its weighted sampler too."""

    def run(classes: Any, recording: Recording) -> None:
        more: dict[str, Any] = {"shuffle": True}
        if sampler == "imbalanced":
            more = {"sampler": ImbalancedSampler(torch.arange(26) % 2)}
        train(classes.DataLoader(Graphs(), batch_size=4, follow_batch=["x"], **more, **loading.arguments()), recording)

    compared(run, EPOCHS * 7)


@OURS
@LOADINGS
def test_our_loader_with_their_collation(way: str, loading: Loading) -> None:
    """``Collater``, ``DynamicBatchSampler`` and ``PrefetchLoader`` around a loader that the user makes."""

    def run(kind: Any, recording: Recording) -> None:
        dataset = [Graphs()[index] for index in range(26)]
        sampler = DynamicBatchSampler(dataset, max_num=20, shuffle=True)
        loader = kind(dataset, batch_sampler=sampler, collate_fn=Collater(dataset), **loading.arguments())
        train(PrefetchLoader(loader), recording)

    theirs = record(TORCH, run)
    assert theirs.seen() > 2 * EPOCHS
    assert_same(record(way, run, "torch_geometric"), theirs, batches=theirs.seen())


def graph() -> Any:
    """A graph of 26 nodes in which each is joined to four others."""
    node = torch.arange(26)
    edges = torch.cat([torch.stack([node, (node + step) % 26]) for step in (1, 5, 7, 11)], dim=1)
    return Data(x=torch.arange(104.0).reshape(26, 4), edge_index=edges, y=node % 2, edge_attr=torch.arange(104.0))


class Neighbours(BaseSampler):  # type: ignore[misc]  # PyG is not there for mypy
    """Some edges into the seeds, chosen by torch's generator of whoever samples."""

    def __init__(self, data: Any) -> None:
        self.edge_index = data.edge_index

    def sample_from_nodes(self, index: Any, **_: Any) -> Any:
        """Seeds, and the neighbours that were chosen."""
        return self.sample(index.node, (index.input_id, index.time))

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """The same for the ends of edges."""
        seeds = torch.cat([index.row, index.col])
        ends = torch.arange(len(seeds)).reshape(2, -1)
        return self.sample(seeds, (index.input_id, ends, index.label, index.time))

    def sample(self, seeds: Any, metadata: Any) -> Any:
        """Half of the edges into the seeds."""
        source, target = self.edge_index
        edge = (torch.isin(target, seeds) & (torch.rand(len(target)) < 0.5)).nonzero().flatten()
        node = torch.cat([seeds, source[edge]])
        position = {int(number): place for place, number in reversed(list(enumerate(node.tolist())))}
        row, col = (
            torch.tensor([position[int(end)] for end in ends[edge]], dtype=torch.long) for ends in (source, target)
        )
        return SamplerOutput(node=node, row=row, col=col, edge=edge, metadata=metadata)


@LOADINGS
@pytest.mark.parametrize("filter_per_worker", [False, True])
def test_a_loader_of_nodes(loading: Loading, *, filter_per_worker: bool) -> None:
    """``NodeLoader`` puts an iterator of its own around ours, unless its workers filter."""

    def run(classes: Any, recording: Recording) -> None:
        data = graph()
        loader = classes.NodeLoader(
            data, Neighbours(data), batch_size=4, shuffle=True, filter_per_worker=filter_per_worker,
            transform=lambda sampled: sampled, **loading.arguments(),
        )  # fmt: skip
        look(loader, recording, epochs=3)

    compared(run, 3 * 7)


@LOADINGS
@pytest.mark.parametrize("filter_per_worker", [False, True])
def test_a_loader_of_links(loading: Loading, *, filter_per_worker: bool) -> None:
    """``LinkLoader`` likewise."""

    def run(classes: Any, recording: Recording) -> None:
        data = graph()
        loader = classes.LinkLoader(
            data, Neighbours(data), edge_label_index=data.edge_index[:, :26], edge_label=torch.arange(26) % 2,
            batch_size=4, shuffle=True, filter_per_worker=filter_per_worker, **loading.arguments(),
        )  # fmt: skip
        look(loader, recording, epochs=3)

    compared(run, 3 * 7)


def nodes_of(classes: Any, data: Any, loading: Loading) -> Any:
    """A loader of nodes that filters in its own iterator."""
    return classes.NodeLoader(
        data, Neighbours(data), batch_size=4, shuffle=True, filter_per_worker=False, **loading.arguments()
    )


@LOADINGS
def test_a_loader_of_nodes_that_is_left_and_begun_again(loading: Loading) -> None:
    """A ``break`` after two batches, then whole epochs: with persistent workers the iterator is reset."""

    def run(classes: Any, recording: Recording) -> None:
        data = graph()
        loader = nodes_of(classes, data, loading)
        for _ in range(2):
            for number, batch in enumerate(loader):
                recording.note("batch", parts(batch))
                if number == 1:
                    break
        look(loader, recording)

    compared(run, 2 * 2 + EPOCHS * 7)


@pytest.mark.parametrize("way", [TORCH, REPLACED])
def test_workers_end_with_a_loader_of_nodes(way: str) -> None:
    """Its collation is a method of its own, and its iterator is wrapped: a collection ends persistent workers."""
    with loaders(way) as classes:
        data = graph()
        loader = classes.NodeLoader(
            data, Neighbours(data), batch_size=4, filter_per_worker=False, num_workers=2, persistent_workers=True
        )
        for _ in range(2):
            assert len(list(loader)) == 7
        pids = [process.pid for process in loader._iterator.iterator._workers]
        del loader

        gc.collect()

    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@LOADINGS
@pytest.mark.parametrize("how", ["pickle", "copy", "deepcopy"])
def test_copies_of_a_loader_of_nodes(loading: Loading, how: str) -> None:
    """Copied after an epoch (its collation is a method of its own), the copy gives what torch's copy gives."""
    copies: dict[str, Callable[[Any], Any]] = {
        "pickle": lambda loader: pickle.loads(pickle.dumps(loader)), "copy": copy.copy, "deepcopy": copy.deepcopy,
    }  # fmt: skip

    def run(classes: Any, recording: Recording) -> None:
        data = graph()
        loader = nodes_of(classes, data, loading)
        if not loading.persistent_workers:  # torch's iterator with workers cannot be pickled
            look(loader, recording, epochs=1)
        look(copies[how](loader), recording)
        if loading.persistent_workers:
            look(loader, recording, epochs=1)

    compared(run, (1 + EPOCHS) * 7)


@LOADINGS
def test_loaders_zipped(loading: Loading) -> None:
    """``ZipLoader`` over two loaders of nodes, which are never iterated themselves."""

    def run(classes: Any, recording: Recording) -> None:
        data = graph()
        pair = [classes.NodeLoader(data, Neighbours(data), input_nodes=torch.arange(26)) for _ in range(2)]
        loader = classes.ZipLoader(pair, filter_per_worker=False, batch_size=4, shuffle=True, **loading.arguments())
        for _ in range(EPOCHS):
            for batch in loader:
                recording.note("batch", [parts(part) for part in batch])

    compared(run, EPOCHS * 7)


@LOADINGS
def test_a_cached_loader(loading: Loading) -> None:
    """``CachedLoader`` keeps an epoch's batches and gives them again: none of them is overwritten."""

    def run(classes: Any, recording: Recording) -> None:
        data = graph()
        loader = nodes_of(classes, data, loading)
        look(CachedLoader(loader), recording)

    compared(run, EPOCHS * 7)


@LOADINGS
@pytest.mark.parametrize("name", ["RandomNodeLoader", "TemporalDataLoader", "KGTripletLoader", "DenseDataLoader"])
def test_other_loaders(loading: Loading, name: str) -> None:
    """Loaders whose collation is the loader itself or a method of it."""
    numbers = torch.arange(26)

    def run(classes: Any, recording: Recording) -> None:
        arguments = loading.arguments()
        if name == "RandomNodeLoader":
            loader = classes.RandomNodeLoader(graph(), num_parts=7, shuffle=True, **arguments)
        elif name == "TemporalDataLoader":
            events = TemporalData(src=numbers % 5, dst=numbers % 7, t=numbers, msg=torch.rand(26, 2))
            loader = classes.TemporalDataLoader(events, batch_size=4, neg_sampling_ratio=1.0, **arguments)
        elif name == "KGTripletLoader":
            loader = classes.KGTripletLoader(
                numbers, numbers % 3, numbers.flip(0), batch_size=4, shuffle=True, **arguments
            )
        else:
            dense = [Data(x=torch.rand(3, 4), adj=torch.eye(3)) for _ in range(26)]
            loader = classes.DenseDataLoader(dense, batch_size=4, shuffle=True, **arguments)
        look(loader, recording)

    compared(run, EPOCHS * 7)
