"""Random programs: a description in JSON of dataset, sampler, loader and consumer, the same for the same seed."""

from __future__ import annotations

import random
from typing import Any

from tests.parity.fuzzing.build import is_stream, size
from tests.parity.fuzzing.hooks import HOOKS
from tests.parity.fuzzing.leaves import GETTING
from tests.parity.fuzzing.material import COLLATES, ERRORS, SAMPLES

__all__ = ["generate"]


def generate(seed: int, *, workers: bool | None = None) -> dict[str, Any]:
    """A program; ``workers``: with worker processes, without, or (None) either."""
    return _Generator(random.Random(f"program {seed}"), workers).program(seed)


class _Generator:
    def __init__(self, rng: random.Random, workers: bool | None) -> None:
        self.rng = rng
        self.workers = rng.random() < 0.2 if workers is None else workers
        self.unordered = self.keyed = False

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def program(self, seed: int) -> dict[str, Any]:
        self.unordered = self.workers and self.chance(0.1)
        self.keyed = not self.unordered and self.chance(0.04)
        dataset = self.keys() if self.keyed else self.stream(1) if self.chance(0.2) else self.map(3)
        found: dict[str, Any] = {"seed": seed, "family": self.pick("own", "own", "mixed"), "dataset": dataset}
        found["loader"] = self.loader(dataset)
        if not is_stream(dataset) and (self.keyed or self.chance(0.45)):
            self.add_sampler(found, dataset)
        if self.chance(0.15) and not self.unordered:
            found["hooks"] = self.rng.sample(sorted(HOOKS), self.pick(1, 1, 2))
        found["ops"] = self.ops(found)
        return found

    # datasets

    def draws(self) -> list[str]:
        return [] if self.unordered else [source for source in ("random", "numpy", "torch") if self.chance(0.45)]

    def sample(self) -> str:
        common = ("tuple", "dict", "tensor", "array", "int", "float", "nested")
        return str(self.pick(*common) if self.chance(0.7) else self.pick(*sorted(SAMPLES)))

    def leaf(self, kind: str) -> dict[str, Any]:
        node: dict[str, Any] = {"kind": kind, "n": self.rng.randint(0 if self.chance(0.1) else 1, 12)}
        node |= {"draws": self.draws(), "sample": self.sample()}
        if self.chance(0.1):
            node["fails"] = {"at": self.rng.randrange(max(1, node["n"])), "error": self.pick(*sorted(ERRORS))}
        if self.chance(0.12):
            node["length"] = self.pick("none", 1, -1, 3)
        return node

    def keys(self) -> dict[str, Any]:
        """A dataset whose indices are no numbers."""
        node = {**self.leaf("map"), "keys": True, "counts": self.chance(0.5)}
        return node | ({"getitems": self.pick("list", "singly", "whole")} if self.chance(0.4) else {})

    def map(self, depth: int) -> dict[str, Any]:
        if depth and self.chance(0.5):
            return self.wrapped(depth)
        if self.chance(0.2):
            return {"kind": self.pick("list", "range", "array", "tensor", "text", "dict"), "n": self.rng.randint(1, 12)}
        if self.chance(0.25):
            node = {"kind": "tensors", "n": self.rng.randint(1, 12), "columns": self.rng.randint(1, 5)}
            return self.overridden(node, "getitem", "getitems", "len")
        node = self.leaf("map")
        node["counts"] = not self.unordered and self.chance(0.6)
        if self.chance(0.3):
            node["getitems"] = self.pick(*sorted(GETTING))
        elif self.chance(0.1):
            node["remembers"] = True
        return node

    def wrapped(self, depth: int) -> dict[str, Any]:
        kind = self.pick("subset", "subset", "split", "concat", "concat", "stack")
        inner = self.map(depth - 1) if not self.chance(0.01) else self.leaf("stream")
        if kind == "subset":
            count = size(inner)
            indices = [self.rng.randrange(-count, count) for _ in range(self.rng.randint(0, 10))] if count else []
            if self.chance(0.05):
                indices.append(count + 2)
            node = {"kind": kind, "of": inner, "indices": indices}
            if self.chance(0.4):
                node["as"] = self.pick("tuple", "array", "tensor", "numbers")
            return self.overridden(node, "both", "getitems", "len")
        if kind == "split":
            node = {"kind": kind, "of": inner, "part": self.pick(0, 1), "shares": self.chance(0.5)}
            return node | ({"seed": self.rng.randrange(9)} if self.chance(0.4) else {})
        if kind == "concat":
            parts = [inner, *(self.map(depth - 1) for _ in range(self.pick(0, 1, 1, 2)))]
            node = {"kind": kind, "parts": parts, "added": len(parts) == 2 and self.chance(0.3)}
            return self.overridden(node, "getitem", "getitems", "both", "len")
        parts = [inner]
        for _ in range(self.pick(0, 1, 1)):
            other = self.map(depth - 1)
            if size(other) != size(inner) and size(other):
                other = {"kind": "subset", "of": other, "indices": [i % size(other) for i in range(size(inner))]}
            parts.append(other)
        return self.overridden({"kind": kind, "parts": parts, "named": self.chance(0.4)}, "getitem", "getitems", "both")

    def overridden(self, node: dict[str, Any], *changes: str) -> dict[str, Any]:
        if self.chance(0.1):
            node["override"] = self.pick(*changes, "nothing")
        return node

    def stream(self, depth: int) -> dict[str, Any]:
        if depth and self.chance(0.3):
            parts = [self.stream(depth - 1) for _ in range(self.pick(1, 2, 3))]
            return self.overridden({"kind": "chain", "parts": parts}, "iter", "len")
        node = self.leaf("stream")
        node |= {"form": self.pick("generator", "generator", "iterator", "list", "self"), "shared": self.chance(0.8)}
        if self.chance(0.3):
            node["opening"] = self.draws()
        if self.workers and node["form"] == "list":
            node.pop("fails", None)  # iter() would raise: of torch's persistent workers one ends then, and it hangs
        return node

    # the loader

    def loader(self, dataset: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.chance(0.85):
            found["batch_size"] = None if self.chance(0.15) else self.rng.randint(1, 5)
        if not is_stream(dataset) and self.chance(0.5):
            found["shuffle"] = True
        if self.chance(0.25) and found.get("batch_size", 1) is not None:
            found["drop_last"] = True
        if self.chance(0.35):
            found["generator"] = self.rng.randrange(99)
        if self.chance(0.3):
            found["collate_fn"] = self.pick(*sorted(COLLATES)) if not self.unordered else "list"
        if self.chance(0.02):
            found |= self.rng.choice(_ODD_ARGUMENTS)
        if self.workers:
            found["num_workers"] = 2 if self.unordered else self.pick(1, 2, 2, 3)
            found["multiprocessing_context"] = "fork"
            if self.chance(0.4):
                found["persistent_workers"] = True
            if self.chance(0.4):
                found["prefetch_factor"] = self.pick(1, 2, 3, 4)
            if self.chance(0.3) and not self.unordered:
                found["worker_init_fn"] = self.pick("draws", "draws", "seeds", "scales", "fails")
            if self.unordered:
                found["in_order"] = False
            if self.chance(0.15):
                found["timeout"] = 60
        return found

    # samplers

    def add_sampler(self, program: dict[str, Any], dataset: dict[str, Any]) -> None:
        given = program["loader"]
        given.pop("shuffle", None)
        node = self.sampler(dataset, batches=self.chance(0.4))
        if self.keyed:
            node = self.user_sampler(max(1, size(dataset)), batches=node["kind"] == "batch")
        if node.get("batches", node["kind"] == "batch"):
            for name in ("batch_size", "drop_last"):
                given.pop(name, None)
            if node["kind"] == "batch" and self.chance(0.2):
                node["batches"], given["batch_size"] = False, None
        program["sampler"] = node

    def sampler(self, dataset: dict[str, Any], *, batches: bool) -> dict[str, Any]:
        count = max(1, size(dataset))
        if batches and self.chance(0.5):
            inner = self.sampler(dataset, batches=False)
            return {"kind": "batch", "of": inner, "batch_size": self.rng.randint(1, 4), "drop_last": self.chance(0.3)}
        if batches or self.chance(0.35):
            return self.user_sampler(count, batches=batches)
        kind = self.pick("sequential", "random", "random", "subset", "weighted", "distributed")
        node: dict[str, Any] = {"kind": kind}
        if kind == "distributed":
            node |= {"num_replicas": self.pick(1, 2, 3), "rank": 0, "shuffle": self.chance(0.7)}
            return node | {"seed": self.rng.randrange(3), "drop_last": self.chance(0.3)}
        if self.chance(0.4):
            node["generator"] = "shared" if self.chance(0.3) else self.rng.randrange(99)
        if kind == "random":
            node["replacement"] = self.chance(0.4)
            if self.chance(0.5):
                node["num_samples"] = self.rng.randint(1, 40)
        if kind == "subset":
            node["indices"] = self.indices(count)
        if kind == "weighted":
            node |= {"weights": [self.rng.randint(1, 9) for _ in range(count)], "num_samples": self.rng.randint(1, 9)}
            node["replacement"] = node["num_samples"] > count or self.chance(0.6)
        return node

    def indices(self, count: int) -> list[int]:
        return [self.rng.randrange(count) for _ in range(self.rng.randint(1, 12))]

    def odd(self, index: int) -> Any:
        return self.pick(
            index, index, {"numpy": index}, {"tensor": index}, -1 - index, str(index), float(index), bool(index)
        )

    def user_sampler(self, count: int, *, batches: bool) -> dict[str, Any]:
        indices: list[Any] = self.indices(count)
        if self.keyed:
            indices = [self.pick({"tuple": [index, "a"]}, f"k{index}") for index in indices]
        elif self.chance(0.15):
            indices = [self.odd(index) for index in indices]
        forms = ["generator", "generator", "eager", "steps", "list", "getitem"]
        if batches:
            indices = [indices[at : at + 2] for at in range(0, len(indices), 2)]
            if self.chance(0.3):
                wrap = self.pick("tuple", "array", "tensor")
                plain = all(isinstance(index, int) for batch in indices for index in batch)
                indices = [{wrap: batch} for batch in indices] if plain or wrap == "tuple" else indices
            elif self.chance(0.1):
                indices.append([])
        node: dict[str, Any] = {"kind": "user", "indices": indices, "form": self.pick(*forms), "batches": batches}
        node |= {"draws": self.draws(), "length": self.chance(0.8), "shuffles": self.chance(0.5)}
        node["wanders"] = self.chance(0.2)
        if self.chance(0.08) and not self.unordered:  # which batches come before a break is then not decided
            node["endless"] = True
        if self.chance(0.1):
            errors = [name for name in sorted(ERRORS) if name != "StopIteration"]
            node["fails"] = {"at": self.rng.randrange(len(indices)), "error": self.pick(*errors)}
        if batches and self.chance(0.3):
            node["attributes"] = True
        return node

    # the consumer

    def ops(self, program: dict[str, Any]) -> list[dict[str, Any]]:
        if self.unordered:
            whole = {"do": "rest", "walk": -1, "most": 999}
            return [{"do": "iter"}, whole, {"do": "drop", "walk": -1}] * self.pick(1, 2)
        ops: list[dict[str, Any]] = []
        budget = 2 if self.workers else 4
        if self.chance(0.15):
            ops.append({"do": "copy", "how": self.pick("pickle", "deepcopy", "copy")})
        for _ in range(self.rng.randint(1, budget)):
            ops += self.pass_over(program["loader"])
            ops += [self.between(program) for _ in range(self.pick(0, 0, 1, 2))]
        if self.chance(0.15):
            ops.append({"do": "look"})
        return ops

    def pass_over(self, loader: dict[str, Any]) -> list[dict[str, Any]]:
        style = self.rng.random()
        if style < 0.4:
            return [{"do": "epoch"}]
        if style < 0.55:
            return [{"do": "epoch", "stop": self.rng.randint(1, 3)}]
        found: list[dict[str, Any]] = [{"do": "iter"}]
        two = self.chance(0.1 if self.workers else 0.3)
        found += [{"do": "iter"}] if two else []
        for _ in range(self.rng.randint(1, 4)):
            found.append({"do": "next", "walk": self.pick(-1, -1, -2, 0), "times": self.rng.randint(1, 3)})
            if self.chance(0.4):
                more: list[dict[str, Any]] = [{"do": "draw"}, {"do": "peek", "walk": -1}, {"do": "len_walk"}]
                if not self.workers or ("collate_fn" not in loader and loader.get("batch_size", 1) is not None):
                    more.append({"do": "scribble"})  # else torch's batch may be the memory of a worker's dataset
                found.append(self.rng.choice(more))
        if self.chance(0.7):
            found.append({"do": "rest", "walk": -1})
            if self.chance(0.4):
                found.append({"do": "next", "walk": -1, "times": 1})
        if self.chance(0.6) or self.workers:
            found.append({"do": "drop", "walk": -1})
        return found

    def between(self, program: dict[str, Any]) -> dict[str, Any]:
        what = self.pick("len", "draw", "seed", "set_epoch", "replace", "resize", "set", "change", "forget", "copy")
        if what == "copy" and self.chance(0.7):
            what = "len"
        details: dict[str, Any] = {
            "resize": {"batch_size": self.rng.randint(1, 5)},
            "set_epoch": {"epoch": self.rng.randint(0, 5)},
            "replace": {"indices": self.indices(max(1, size(program["dataset"])))},
            "change": {"what": self.pick("scale", "indices", "positions", "tensors")},
            "set": self.rng.choice(_SETTINGS),
            "seed": {"seed": self.rng.randrange(99)},
        }
        return {"do": what, **details.get(what, {})}


_ODD_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"timeout": -1},
    {"timeout": 1},
    {"batch_size": 0},
    {"drop_last": True},
    {"prefetch_factor": 2},
    {"pin_memory": True},
    {"pin_memory": True, "pin_memory_device": "cuda"},
    {"shuffle": False},
    {"shuffle": 0},
)

_SETTINGS: tuple[dict[str, Any], ...] = (
    {"name": "collate_fn", "value": "list"},
    {"name": "collate_fn", "value": "draws"},
    {"name": "generator", "value": 5},
    {"name": "generator", "value": None},
    {"name": "pin_memory", "value": False},
    {"name": "worker_init_fn", "value": "draws"},
    {"name": "in_order", "value": True},
    {"name": "batch_size", "value": 7},
    {"name": "drop_last", "value": True},
    {"name": "sampler", "value": None},
    {"name": "own", "value": 3},
    {"name": "prefetch_factor", "value": 3},
    {"name": "timeout", "value": 0},
    {"name": "persistent_workers", "value": True},
    {"name": "multiprocessing_context", "value": None},
    {"name": "multiprocessing_context", "value": "nonsense"},
)
