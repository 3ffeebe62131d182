"""Rule global-randomness: samples that use the global generators of ``random``, ``numpy.random`` and ``torch``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from penstock.doctor.checks.findings import Finding, Severity
from penstock.doctor.checks.functions import FunctionCall, UserFunction
from penstock.doctor.checks.subject import Subject

__all__ = ["find"]

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
        "Random",
        "SystemRandom",
        "default_rng",
        "Generator",
        "RandomState",
        "SeedSequence",
        "BitGenerator",
        "PCG64",
        "Philox",
    }
    | {"MT19937", "SFC64", "PCG64DXSM", "getstate", "get_state", "setstate", "set_state"}
)
_SEEDS: Final = frozenset({"random.seed", "numpy.random.seed", "torch.manual_seed", "torch.random.manual_seed"})
_ADVICE: Final = (
    "Use penstock.rng(), the sample's own generator, or pass seed_per_sample=True to penstock.torch.DataLoader, which "
    "seeds random, numpy.random and torch before each sample."
)


def find(subject: Subject) -> Iterator[Finding]:
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
    yield function.describe("global-randomness", severity, (call.line for call in calls), text, _ADVICE)


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
