"""Rule global-randomness: samples that draw from the generators of ``random``, ``numpy.random`` and ``torch``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from penstock.doctor.code import Call, Function
from penstock.doctor.findings import Finding, Severity
from penstock.doctor.subject import Subject

__all__ = ["find"]

_TORCH: Final = frozenset(
    f"torch.{name}"
    for name in (
        "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson",
        "rand_like", "randn_like", "randint_like",
    )
)  # fmt: skip
# What only makes a generator of its own, or asks for one.
_HARMLESS: Final = frozenset(
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
    "Draw from penstock.rng(), the sample's own generator; or give penstock.torch.DataLoader seed_per_sample=True, "
    "which seeds random, numpy.random and torch before each sample."
)


def find(subject: Subject) -> Iterator[Finding]:
    """Functions of the user's that draw globally while samples are made; seeds that all workers share."""
    for function in subject.code.functions:
        if function.function is subject.given("worker_init_fn"):
            yield from _constant_seeds(subject, function)
        elif not subject.setting.keyed:
            yield from _drawing(subject, function)


def _drawing(subject: Subject, function: Function) -> Iterator[Finding]:
    calls = [call for call in function.calls if _is_global(call)]
    if not calls:
        return
    names = ", ".join(sorted({call.name for call in calls}))
    severity: Severity = "note"
    why = "what a sample draws depends on how many workers there are, and a resumed run draws something else"
    if subject.setting.workers == "threads":
        severity = "warning"
        why = "threads take turns at it by chance, so no run can be repeated"
    text = f"It draws from a global generator ({names}): {why}."
    where = function.where(*(call.line for call in calls))
    yield Finding("global-randomness", severity, where, text, _ADVICE)


def _is_global(call: Call) -> bool:
    module, _, name = call.name.rpartition(".")
    if module in {"random", "numpy.random"}:
        return name not in _HARMLESS
    return call.name in _TORCH and not any(keyword.arg == "generator" for keyword in call.node.keywords)


def _constant_seeds(subject: Subject, function: Function) -> Iterator[Finding]:
    if subject.setting.num_workers == 1 or subject.setting.workers == "serial":
        return
    for call in function.calls:
        arguments = call.node.args
        if call.name in _SEEDS and arguments and all(isinstance(argument, ast.Constant) for argument in arguments):
            text = f"{call.name} with a constant: all workers draw the same numbers, in every epoch."
            advice = "Add the worker: seed by torch.utils.data.get_worker_info().seed, which differs by epoch too."
            yield Finding("global-randomness", "error", function.where(call.line), text, advice)
