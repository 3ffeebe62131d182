"""Rule shared-generator: a random generator that is copied, state and all, into every worker.

Where a loader seeds every sample (``seed_per_sample``), what counts is another thing: whether the generator is among
those that it seeds.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch

from penstock.datasets.libraries import LIBRARIES, known_types
from penstock.datasets.user_code import is_user_code
from penstock.datasets.walk import walk
from penstock.doctor.findings import Finding
from penstock.doctor.subject import Subject

__all__ = ["find"]

_GENERATORS: Final = (
    random.Random,
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    torch.Generator,
)
_ADVICE: Final = (
    "Draw from penstock.rng() inside __getitem__ or the transform: the sample's own generator, the same for any number "
    "of workers. Or make the generator in worker_init_fn, seeded by torch.utils.data.get_worker_info().seed."
)
_SEEDED_ADVICE: Final = (
    "Draw from penstock.rng() instead, the sample's own generator; or seed this one from it at the beginning of "
    f"__getitem__. Seeded are random, numpy.random, torch, cv2, and the objects of {', '.join(LIBRARIES)}."
)


def find(subject: Subject) -> Iterator[Finding]:
    """A generator in an attribute or a global variable that code making samples uses."""
    if subject.setting.keyed:
        yield from _not_seeded(subject)
        return
    if _reseeds(subject):
        return
    for place in subject.graph.places:
        if _is_generator(place.value) and (place.owner is None or is_user_code(type(place.owner))):
            yield _finding(subject, place.path, place.value)
    seen: set[int] = set()
    for function in subject.code.functions:
        for name in sorted(function.mentions):
            value = function.function.__globals__.get(name)
            if _is_generator(value) and id(value) not in seen:
                seen.add(id(value))
                yield _finding(subject, f"global {name} in {function.where()}", value)


def _not_seeded(subject: Subject) -> Iterator[Finding]:
    """Generators that seed_per_sample does not reach: the user's, and those of libraries that are not known."""
    known = tuple(known_types())
    graph = walk(subject.roots, code=True, enter=lambda place: place.depth == 0 or not issubclass(place.kind, known))
    for place in graph.places:
        if _is_generator(place.value) and not _is_global(place.value):
            text = (
                f"seed_per_sample does not seed this {type(place.value).__name__}: what it draws depends on the number "
                "and kind of workers, and on where a run was resumed."
            )
            yield Finding("shared-generator", "warning", place.path, text, _SEEDED_ADVICE)


def _is_global(generator: Any) -> bool:
    """Whether it is the one behind ``random``, ``numpy.random`` or torch's functions, which are seeded."""
    of_numpy: Any = np.random.mtrand._rand  # noqa: SLF001  # what np.random.* draws from
    of_python: Any = random.random.__self__  # type: ignore[attr-defined]  # the stub has it as a plain function
    return any(generator is own for own in (of_python, of_numpy, of_numpy._bit_generator, torch.default_generator))  # noqa: SLF001  # as above


def _finding(subject: Subject, where: str, generator: Any) -> Finding:
    setting, kind = subject.setting, type(generator).__name__
    if setting.workers == "serial":
        text = f"A {kind} that every worker would copy: harmless while num_workers=0, but a resumed run starts it anew."
        return Finding("shared-generator", "note", where, text, _ADVICE)
    if setting.workers == "threads":
        text = f"One {kind} for {setting.num_workers} threads: who draws first is chance, so no run can be repeated."
        return Finding("shared-generator", "warning", where, text, _ADVICE)
    keeps = subject.given("persistent_workers", False)
    again = "" if keeps else ", and the next epoch draws the same numbers again"
    copies = setting.num_workers != 1
    if not copies and keeps:
        text = f"A {kind} that the worker continues: a resumed run starts it anew."
        return Finding("shared-generator", "note", where, text, _ADVICE)
    same = "all draw the same numbers" if copies else "it begins where the parent's stands"
    text = f"A {kind} is copied with its state into {setting.each}: {same}{again}."
    return Finding("shared-generator", "error", where, text, _ADVICE)


def _is_generator(value: Any) -> bool:
    kind = type(value)
    return issubclass(kind, _GENERATORS) and not issubclass(kind, random.SystemRandom)


def _reseeds(subject: Subject) -> bool:
    """Whether something looks at which worker it is in: then it is taken to seed accordingly."""
    init = subject.given("worker_init_fn")
    if init is not None:
        try:
            source = inspect.getsource(init)
        except (OSError, TypeError):  # a callable object, or no source: it is there for a reason
            return True
        if any(word in source for word in ("get_worker_info", "Generator", "default_rng", "Random", ".rng", "dataset")):
            return True
    return subject.code.mentions("get_worker_info")
