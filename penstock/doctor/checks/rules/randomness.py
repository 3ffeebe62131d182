"""Rules about random numbers: shared-generator, global-randomness.

With ``seed_per_sample``, shared-generator reports the generators that the loader does not seed.
"""

from __future__ import annotations

import ast
import inspect
import random
from collections.abc import Iterator
from typing import Final

import numpy as np
import torch

from penstock.datasets.object_graph import find_objects
from penstock.datasets.seeded_libraries import LIBRARIES, known_types
from penstock.datasets.user_code import is_user_code
from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.checks.functions import FunctionCall, UserFunction
from penstock.doctor.checks.subject import Subject
from penstock.doctor.watching.steps.source import name_lines

__all__ = ["find_global_randomness", "find_shared_generators"]

_GENERATORS: Final = (
    random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator, torch.Generator,
)  # fmt: skip
_SHARED_ADVICE: Final = (
    "Use penstock.rng() inside __getitem__ or the transform: it gives the same numbers for any number of workers. Or "
    "create the generator in worker_init_fn, with the seed torch.utils.data.get_worker_info().seed."
)
_SEEDED_ADVICE: Final = (
    "Use penstock.rng() instead, or seed this generator from it at the beginning of __getitem__. seed_per_sample seeds "
    f"random, numpy.random, torch, cv2, and the objects of {', '.join(LIBRARIES)}."
)


def find_shared_generators(subject: Subject) -> Iterator[Finding]:
    """Find generators in attributes, and in global variables that functions use while they make samples."""
    if subject.settings.seeds_samples:
        yield from _find_unseeded(subject)
        return
    if _seeds_workers(subject):
        return
    for place in subject.graph.objects:
        if _is_generator(place.value) and (place.owner is None or is_user_code(type(place.owner))):
            yield _describe_shared(subject, place.path, place.value)
    seen: set[int] = set()
    for function in subject.functions:
        for name in sorted(function.mentions):
            value = function.function.__globals__.get(name)
            if _is_generator(value) and id(value) not in seen:
                seen.add(id(value))
                code = function.function.__code__
                where = name_lines(function.function.__qualname__, code.co_filename, [code.co_firstlineno])
                yield _describe_shared(subject, f"global {name} in {where}", value)


def _find_unseeded(subject: Subject) -> Iterator[Finding]:
    """Find generators that seed_per_sample does not seed: the user's, and those of unknown libraries."""
    known = tuple(known_types())
    graph = find_objects(
        subject.roots, code=True, enter=lambda place: place.depth == 0 or not issubclass(place.kind, known)
    )
    for place in graph.objects:
        if _is_generator(place.value) and not _is_global(place.value):
            text = (
                f"seed_per_sample does not seed this {type(place.value).__name__}: its numbers depend on the number "
                "and kind of workers, and on where a run is resumed."
            )
            yield Finding("shared-generator", "warning", place.path, text, _SEEDED_ADVICE)


def _is_global(generator: object) -> bool:
    """Return whether it is the generator of ``random``, ``numpy.random`` or torch's functions, which are seeded."""
    of_numpy = np.random.mtrand._rand  # noqa: SLF001  # the generator of np.random.*
    of_python = random.random.__self__  # type: ignore[attr-defined]  # the stub has it as a plain function
    return any(generator is own for own in (of_python, of_numpy, of_numpy._bit_generator, torch.default_generator))  # noqa: SLF001  # as above


def _describe_shared(subject: Subject, where: str, generator: object) -> Finding:
    settings, kind = subject.settings, type(generator).__name__
    if settings.kind == "serial":
        text = f"This {kind} has no effect on workers with num_workers=0, but a resumed run starts it again."
        return Finding("shared-generator", "note", where, text, _SHARED_ADVICE)
    if settings.kind == "threads":
        text = (
            f"{settings.num_workers} threads share this {kind} and draw in a random order, so no run can be repeated."
        )
        return Finding("shared-generator", "warning", where, text, _SHARED_ADVICE)
    is_persistent = subject.argument("persistent_workers", False)
    again = "" if is_persistent else ", and the next epoch draws the same numbers again"
    has_copies = settings.num_workers != 1
    if not has_copies and is_persistent:
        text = f"A resumed run starts this {kind} again, because its state is not saved."
        return Finding("shared-generator", "note", where, text, _SHARED_ADVICE)
    effect = "all draw the same numbers" if has_copies else "it continues from the parent's state"
    text = f"This {kind} is copied with its state into {settings.each_worker}: {effect}{again}."
    return Finding("shared-generator", "error", where, text, _SHARED_ADVICE)


def _is_generator(value: object) -> bool:
    kind = type(value)
    return issubclass(kind, _GENERATORS) and not issubclass(kind, random.SystemRandom)


def _seeds_workers(subject: Subject) -> bool:
    """Return whether the user's code seems to seed each worker's generators itself."""
    init = subject.argument("worker_init_fn")
    if callable(init):
        try:
            source = inspect.getsource(init)
        except (OSError, TypeError):  # no source: assume that it seeds
            return True
        if any(word in source for word in ("get_worker_info", "Generator", "default_rng", "Random", ".rng", "dataset")):
            return True
    return subject.functions.mentions("get_worker_info")


_TORCH: Final = frozenset(
    f"torch.{name}"
    for name in (
        "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson",
        "rand_like", "randn_like", "randint_like",
    )
)  # fmt: skip
# Functions that create a generator, or read or set a state.
_NOT_DRAWING: Final = frozenset(
    {
        "Random", "SystemRandom", "default_rng", "Generator", "RandomState", "SeedSequence", "BitGenerator", "PCG64",
        "Philox", "MT19937", "SFC64", "PCG64DXSM", "getstate", "get_state", "setstate", "set_state",
    }
)  # fmt: skip
_SEEDS: Final = frozenset({"random.seed", "numpy.random.seed", "torch.manual_seed", "torch.random.manual_seed"})
_GLOBAL_ADVICE: Final = (
    "Use penstock.rng(), the sample's own generator, or pass seed_per_sample=True to penstock.torch.DataLoader, which "
    "seeds random, numpy.random and torch before each sample."
)


def find_global_randomness(subject: Subject) -> Iterator[Finding]:
    """Find functions that use global generators in samples, and a ``worker_init_fn`` that seeds with a constant."""
    for function in subject.functions:
        if function.function is subject.argument("worker_init_fn"):
            yield from _find_constant_seeds(subject, function)
        elif not subject.settings.seeds_samples:
            yield from _find_global_draws(subject, function)


def _find_global_draws(subject: Subject, function: UserFunction) -> Iterator[Finding]:
    calls = [call for call in function.calls if _draws_globally(call)]
    if not calls:
        return
    names = ", ".join(sorted({call.name for call in calls}))
    severity: Severity = "note"
    why = "the numbers depend on how many workers there are, and a resumed run draws others"
    if subject.settings.kind == "threads":
        severity = "warning"
        why = "threads draw from it in a random order, so no run can be repeated"
    text = f"This function draws from a global generator ({names}): {why}."
    yield function.describe("global-randomness", severity, (call.line for call in calls), text, _GLOBAL_ADVICE)


def _draws_globally(call: FunctionCall) -> bool:
    module, _, name = call.name.rpartition(".")
    if module in {"random", "numpy.random"}:
        return name not in _NOT_DRAWING
    return call.name in _TORCH and not any(keyword.arg == "generator" for keyword in call.node.keywords)


def _find_constant_seeds(subject: Subject, function: UserFunction) -> Iterator[Finding]:
    if subject.settings.num_workers == 1 or subject.settings.kind == "serial":
        return
    for call in function.calls:
        arguments = call.node.args
        if call.name in _SEEDS and arguments and all(isinstance(argument, ast.Constant) for argument in arguments):
            text = f"{call.name} is called with a constant, so all workers draw the same numbers, in every epoch."
            advice = "Use torch.utils.data.get_worker_info().seed, which differs between workers and between epochs."
            yield function.describe("global-randomness", "error", [call.line], text, advice)
