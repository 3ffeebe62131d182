"""From a program's description to its objects, of torch's classes or penstock's; what is left out has a default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils import data

import penstock.torch as pt
from tests.parity.fuzzing.hooks import loader_class
from tests.parity.fuzzing.leaves import GETTING, MapLeaf, Remembering, Sized, SizedStream, Stream
from tests.parity.fuzzing.material import COLLATES, INITS, note
from tests.parity.fuzzing.samplers import Batches, SizedSampler, UserSampler

__all__ = ["Built", "build", "children", "is_stream", "size"]


@dataclass
class Built:
    """The objects of a program.

    Parameters
    ----------
    loader : DataLoader
        Its loader.
    leaves : list
        The datasets of a user, in the order of the description.
    wrappers : list
        The datasets over them, likewise.
    samplers : list
        The samplers, the outer before the inner.
    generators : list
        Of torch, that the loader and the samplers were given.
    """

    loader: Any = None
    leaves: list[Any] = field(default_factory=list)
    wrappers: list[Any] = field(default_factory=list)
    samplers: list[Any] = field(default_factory=list)
    generators: list[torch.Generator] = field(default_factory=list)


def build(program: dict[str, Any], family: str) -> Built:
    """The objects of ``program``; ``family``: "torch", "own", or "mixed" (penstock's loader over torch's datasets)."""
    made = Built()
    maker = _Maker(data if family in {"torch", "mixed"} else pt, made)
    dataset = maker.dataset(program.get("dataset", {"kind": "map"}), "d")
    made.loader = maker.loader(program, dataset, data if family == "torch" else pt)
    return made


def children(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes right under a dataset's."""
    found = [node["of"]] if "of" in node else []
    return [*found, *node.get("parts", ())]


def is_stream(node: dict[str, Any]) -> bool:
    """Whether a node is an iterable dataset."""
    return node.get("kind") in {"stream", "chain"}


def size(node: dict[str, Any]) -> int:
    """How many samples a dataset has; for a stack, of its first part."""
    kind, inner = node.get("kind", "map"), [size(child) for child in children(node)]
    if kind in {"concat", "chain"}:
        return sum(inner)
    if kind == "subset":
        return len(node.get("indices", ()))
    if kind == "split":
        return int(inner[0]) // 2 if node.get("part", 0) else inner[0] - inner[0] // 2
    return inner[0] if inner else int(node.get("n", 5))


class _Maker:
    def __init__(self, module: Any, made: Built) -> None:
        self.module, self.made, self.count = module, made, 0

    # datasets

    def dataset(self, node: dict[str, Any], name: str) -> Any:
        kind = node.get("kind", "map")
        if kind in {"map", "stream"}:
            leaf = _leaf(kind, node, name)
            self.made.leaves.append(leaf)
            return leaf
        if kind in _PLAIN:
            return _PLAIN[kind](node.get("n", 5))
        if kind == "tensors":
            columns = [_column(i, node.get("n", 5)) for i in range(node.get("columns", 2))]
            made = self._class("TensorDataset", node)(*columns)
        else:
            parts = [self.dataset(child, f"{name}{i}") for i, child in enumerate(children(node))]
            made = getattr(self, f"_{kind}")(node, parts)
        self.made.wrappers.append(made)
        return made

    def _class(self, name: str, node: dict[str, Any]) -> Any:
        return _overridden(getattr(self.module, name), node.get("override"))

    def _subset(self, node: dict[str, Any], parts: list[Any]) -> Any:
        return self._class("Subset", node)(parts[0], _AS[node.get("as", "list")](node.get("indices", [])))

    def _split(self, node: dict[str, Any], parts: list[Any]) -> Any:
        count = len(parts[0])
        lengths: Any = [0.5, 0.5] if node.get("shares") else [count - count // 2, count // 2]
        given = {} if node.get("seed") is None else {"generator": torch.Generator().manual_seed(node["seed"])}
        return self.module.random_split(parts[0], lengths, **given)[node.get("part", 0)]

    def _concat(self, node: dict[str, Any], parts: list[Any]) -> Any:
        if node.get("added") and len(parts) == 2 and hasattr(parts[0], "__add__") and not isinstance(parts[0], list):
            return parts[0] + parts[1]
        return self._class("ConcatDataset", node)(parts)

    def _stack(self, node: dict[str, Any], parts: list[Any]) -> Any:
        kind = self._class("StackDataset", node)
        return kind(**{f"f{i}": part for i, part in enumerate(parts)}) if node.get("named") else kind(*parts)

    def _chain(self, node: dict[str, Any], parts: list[Any]) -> Any:
        return self._class("ChainDataset", node)(parts)

    # samplers

    def sampler(self, node: dict[str, Any], dataset: Any, name: str) -> Any:
        made = self._sampler(node, dataset, name)
        self.made.samplers.append(made)
        return made

    def _sampler(self, node: dict[str, Any], dataset: Any, name: str) -> Any:
        if node.get("kind") == "user":
            return _user_sampler(node, name)
        if node.get("kind") == "batch":
            inner = self.sampler(node.get("of", {}), dataset, f"{name}0")
            return self.module.BatchSampler(inner, node.get("batch_size", 2), node.get("drop_last", False))
        return self._torch_sampler(node, dataset)

    def _torch_sampler(self, node: dict[str, Any], dataset: Any) -> Any:
        module, kind = self.module, node.get("kind", "sequential")
        if kind == "distributed":
            given = {key: node[key] for key in ("shuffle", "seed", "drop_last") if key in node}
            return module.DistributedSampler(dataset, node.get("num_replicas", 2), node.get("rank", 0), **given)
        generator = self.generator(node.get("generator"))
        if kind == "random":
            more = {key: node[key] for key in ("replacement", "num_samples") if key in node}
            return module.RandomSampler(dataset, generator=generator, **more)
        if kind == "subset":
            return module.SubsetRandomSampler(node.get("indices", [0]), generator)
        if kind == "weighted":
            weights = node.get("weights", [1.0])
            count, replacement = node.get("num_samples", 1), node.get("replacement", True)
            return module.WeightedRandomSampler(weights, count, replacement, generator)
        return module.SequentialSampler(dataset)

    def generator(self, seed: Any) -> torch.Generator | None:
        """A new generator, none, or ("shared") the loader's own."""
        if seed is None or (seed == "shared" and not self.made.generators):
            return None
        if seed == "shared":
            return self.made.generators[0]
        generator = torch.Generator().manual_seed(seed)
        self.made.generators.append(generator)
        return generator

    # the loader

    def loader(self, program: dict[str, Any], dataset: Any, module: Any) -> Any:
        given: dict[str, Any] = dict(program.get("loader", {}))
        generator = self.generator(given.pop("generator", None))
        if generator is not None:
            given["generator"] = generator
        for name, table in (("collate_fn", COLLATES), ("worker_init_fn", INITS)):
            if name in given:
                given[name] = table[given[name]]
        if program.get("sampler") is not None:
            node = program["sampler"]
            sampler = self.sampler(node, dataset, "s")
            given["batch_sampler" if node.get("batches", node.get("kind") == "batch") else "sampler"] = sampler
        return loader_class(module.DataLoader, program.get("hooks", []))(dataset, **given)


def _leaf(kind: str, node: dict[str, Any], name: str) -> Any:
    sized = node.get("length", 0) != "none"
    if kind == "stream":
        return (SizedStream if sized else Stream)(name, node)
    if node.get("remembers") and sized:
        return Remembering(name, node)
    if node.get("getitems") and sized:
        return GETTING[node["getitems"]](name, node)
    return (Sized if sized else MapLeaf)(name, node)


_PLAIN: dict[str, Any] = {
    "list": lambda n: [(i, f"t{i}") for i in range(n)],
    "range": range,
    "array": lambda n: np.arange(2 * n, dtype=np.int16).reshape(n, 2),
    "tensor": lambda n: torch.arange(3 * n).reshape(n, 3),
    "text": lambda n: "abcdefghijkl"[:n],
    "dict": lambda n: {i: torch.tensor(i) for i in range(n)},
}
"""Datasets that are no class of anybody's."""

_AS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "array": lambda indices: np.array(indices, np.int64),
    "tensor": lambda indices: torch.tensor(indices, dtype=torch.int64),
    "numbers": lambda indices: [np.int32(index) for index in indices],
}


def _column(which: int, n: int) -> torch.Tensor:
    if which == 0:
        return torch.arange(n)
    if which == 1:
        return torch.linspace(0, 1, 2 * n).reshape(n, 2)
    return (
        torch.arange(n * 6).reshape(2, 3, n).permute(2, 0, 1).to([torch.uint8, torch.bool, torch.bfloat16][which % 3])
    )


def _user_sampler(node: dict[str, Any], name: str) -> Any:
    indices = [_index(index) for index in node.get("indices", [0, 1, 2])]
    form = node.get("form", "generator")
    if form in _SEQUENCES:
        return _SEQUENCES[form](indices)
    if node.get("batches") and node.get("attributes"):
        return Batches(name, node, indices)
    return (SizedSampler if node.get("length", True) else UserSampler)(name, node, indices)


def _index(described: Any) -> Any:
    """An index, or a batch of them: JSON has neither tuples nor tensors, so that these are named."""
    if isinstance(described, dict):
        [(kind, value)] = described.items()
        return _TYPES[kind](value)
    return described


_TYPES: dict[str, Any] = {
    "tuple": lambda value: tuple(map(_index, value)),
    "tensor": torch.tensor,
    "array": lambda value: np.array(value, np.int64),
    "numpy": np.int64,
    "range": lambda value: range(*value),
    "set": frozenset,
    "slice": lambda value: slice(*value),
}


class _Indexed:
    """Iterable by ``__getitem__`` alone."""

    def __init__(self, indices: list[Any]) -> None:
        self.indices = indices

    def __getitem__(self, at: int) -> Any:
        note("sampler", "indexed", at)
        return self.indices[at]

    def __len__(self) -> int:
        return len(self.indices)


_SEQUENCES: dict[str, Any] = {
    "list": list,
    "plain tuple": tuple,
    "plain tensor": torch.tensor,
    "plain array": np.array,
    "getitem": _Indexed,
}


# subclasses of wrappers

_overriding: dict[tuple[Any, str], type] = {}


def _overridden(base: Any, what: str | None) -> Any:
    """A subclass of a dataset's class in which a user changes something."""
    if what is None:
        return base
    if (base, what) not in _overriding:
        name = f"{base.__module__.replace('.', '_')}_{base.__name__}_{what}"  # pickle takes a point for an attribute
        made = type(name, (base,), {**_changes(base, what), "__module__": __name__})
        globals()[name] = _overriding[base, what] = made
    return _overriding[base, what]


def _changes(base: Any, what: str) -> dict[str, Any]:
    def getitem(self: Any, index: Any) -> Any:
        note("wrapper", what, repr(index))
        return base.__getitem__(self, index)

    def getitems(self: Any, indices: Any) -> Any:
        note("wrapper", what, repr(indices))
        return [self[index] for index in indices]

    def length(self: Any) -> int:
        note("wrapper", "len")
        return max(0, int(base.__len__(self)) - 1)

    def walk(self: Any) -> Iterator[Any]:
        note("wrapper", "iter")
        yield from base.__iter__(self)

    found: dict[str, dict[str, Any]] = {
        "getitem": {"__getitem__": getitem},
        "getitems": {"__getitems__": getitems},
        "both": {"__getitem__": getitem, "__getitems__": getitems},
        "len": {"__len__": length},
        "iter": {"__iter__": walk},
        "nothing": {},
    }
    return found[what]
