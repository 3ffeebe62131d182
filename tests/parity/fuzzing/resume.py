"""A state taken in mid-epoch, as JSON, and loaded by a fresh loader: both loaders give the same from there on.

torch has no such thing, so that penstock is compared with itself.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import numpy as np
import torch

from tests.parity.fuzzing.build import build, children, is_stream
from tests.parity.fuzzing.execute import BATCHES, frozen, warnings_noted
from tests.parity.fuzzing.generate import generate
from tests.parity.fuzzing.material import begin

__all__ = ["check_resume", "resumable"]


def resumable(number: int, *, workers: bool | None = None) -> dict[str, Any]:
    """A random program without what no state can know: counts that a dataset or a user's sampler keeps for itself."""
    program = copy.deepcopy(generate(number, workers=workers))
    counts = program["dataset"].get("remembers", False) and program["dataset"].get("counts", False)
    _strip(program["dataset"])
    program["dataset"]["counts"] = counts  # the dataset's own state has the number
    sampler = program.get("sampler") or {}
    for node in (sampler, sampler.get("of", {})):
        node.pop("endless", None)
        node.pop("fails", None)
    program["loader"].pop("in_order", None)
    if program["loader"].get("worker_init_fn") == "fails":
        del program["loader"]["worker_init_fn"]
    program.pop("hooks", None)
    rng = random.Random(f"resume {number}")
    program["epochs"], program["taken"] = rng.choice([0, 0, 1]), rng.randint(0, 6)
    return program


def _strip(node: dict[str, Any]) -> None:
    node["counts"] = False
    if node.get("length") == "none":
        del node["length"]
    if node.get("kind") == "split":
        node.setdefault("seed", 1)  # else it is another one, and the state is refused
    if node.get("kind") == "stream":
        node.pop("fails", None)
        node["form"] = "generator" if node.get("form") == "self" else node.get("form", "generator")
    for child in children(node):
        _strip(child)


def check_resume(program: dict[str, Any]) -> str | None:
    """How the two differ, if they do; None also for arguments that are refused, which the other comparison has."""
    begin()
    with warnings_noted():
        _seed(1)
        try:
            first = build(program, "own")
            walk = iter(first.loader)
        except Exception:  # noqa: BLE001  # as the docstring says
            return None
        for _ in range(program.get("epochs", 0)):
            _rest(walk)
            walk = iter(first.loader)
        head = _rest(walk, program.get("taken", 1))
        while head[-1:] and head[-1].isidentifier() and head[-1] != "ended":  # behind an error, its batch comes again
            head += _rest(walk, 1)
        ended = "ended" in head
        state = json.loads(json.dumps(first.loader.state_dict()))
        expected = [] if ended else [_rest(walk)]
        expected += [_rest(iter(first.loader)) for _ in range(2 - len(expected))]

        _seed(2)
        second = build(program, "own")
        second.loader.load_state_dict(state)
        got = [_rest(iter(second.loader)) for _ in range(2)]
    if program["loader"].get("num_workers"):
        if _opens_by_chance(program) or '"wanders": true' in json.dumps(program.get("sampler")):
            return None  # nor is it told from where a sampler drew ahead of what was delivered
        if not _keeps_next_epoch(program):
            expected = [] if ended else expected[:1]
    for number, (one, two) in enumerate(zip(expected, got, strict=False)):
        if one != two:
            at = next((i for i, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), len(one))
            return f"epoch {number}, batch {at}: {one[at : at + 1]} became {two[at : at + 1]}"
    return None


def _keeps_next_epoch(program: dict[str, Any]) -> bool:
    """Whether a state tells with worker processes what the next epoch is drawn from.

    It does not where a sampler draws from torch's global generator though the loader has one of its own, nor where a
    user's sampler draws ahead of what is delivered.
    """
    sampler = program.get("sampler") or {}
    inner = sampler.get("of", sampler)
    draws = bool(inner.get("draws") or inner.get("shuffles")) and inner.get("kind") == "user"
    globally = inner.get("kind") in {"random", "subset", "weighted"} and "generator" not in inner
    return not draws and not ("generator" in program["loader"] and globally)


def _opens_by_chance(program: dict[str, Any]) -> bool:
    """Whether iter() of a stream draws from a persistent worker's generators, which no state tells."""
    draws = '"opening"' in json.dumps(program["dataset"]) or '"list"' in json.dumps(program["dataset"])
    return bool(program["loader"].get("persistent_workers")) and is_stream(program["dataset"]) and draws


def _rest(walk: Any, most: int = BATCHES) -> list[str]:
    found: list[str] = []
    for _ in range(most):
        try:
            found.append(frozen(next(walk)))
        except StopIteration:
            return [*found, "ended"]
        except Exception as error:  # noqa: BLE001  # an error counts in the place of its batch
            found.append(type(error).__name__)
    return found


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # the global one is meant
    torch.manual_seed(seed)
