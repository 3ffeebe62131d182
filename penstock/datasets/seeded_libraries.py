"""Libraries whose objects have random generators of their own: how they are found in a dataset and seeded.

Seeds of ``random``, ``numpy.random``, torch and cv2 do not affect them. For a loader with ``seed_per_sample``, each
worker searches once for objects of known libraries (:data:`LIBRARIES`), and seeds them for each sample, in addition to
the global generators::

    dataset, collate_fn ──find_objects──> Compose, ... ──seeders──> called with a new seed before each sample

The search covers attributes, containers, closures and global variables of the user's functions, within the limits of
:mod:`penstock.datasets.object_graph`. No library is imported. An object of a library seeds what is inside it, so these
are not searched. ``penstock.torch.check`` names generators that are not seeded.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.datasets.object_graph import find_objects

__all__ = ["LIBRARIES", "SeededLibrary", "find_seeders", "known_types"]


@dataclass(frozen=True, slots=True)
class SeededLibrary:
    """A library whose objects draw from generators that they hold."""

    types: Callable[[Any], tuple[type, ...]]  # from the module of the library to the classes of its outermost objects
    seed: Callable[[Any, int], None]
    """``seed(object, number)``, with 63 random bits: seeds the object and those inside it."""


def _albumentations_types(module: Any) -> tuple[type, ...]:
    kinds = (module.BaseCompose, module.BasicTransform)
    return tuple(kind for kind in kinds if hasattr(kind, "set_random_state"))  # 1.x uses the global generators


def _seed_albumentations(transform: Any, number: int) -> None:
    # set_random_seed would give all transforms inside the same seed: two flips would always agree
    transform.set_random_state(np.random.default_rng(number), random.Random(number))


def _seed_imgaug(augmenter: Any, number: int) -> None:
    augmenter.seed_(number & 0x7FFFFFFF)


def _seed_monai(transform: Any, number: int) -> None:
    transform.set_random_state(seed=number & 0xFFFFFFFF)


LIBRARIES: Final[dict[str, SeededLibrary]] = {
    "albumentations": SeededLibrary(_albumentations_types, _seed_albumentations),
    "imgaug": SeededLibrary(lambda module: (module.augmenters.Augmenter,), _seed_imgaug),
    "monai": SeededLibrary(lambda module: (module.transforms.Randomizable,), _seed_monai),
}
"""Libraries by the name of their package."""


def known_types() -> dict[type, SeededLibrary]:
    """Classes of the libraries that are imported, in the order of :data:`LIBRARIES`."""
    known: dict[type, SeededLibrary] = {}
    for name, library in LIBRARIES.items():
        if (module := sys.modules.get(name)) is not None:
            try:
                known |= dict.fromkeys(library.types(module), library)
            except AttributeError:  # partly imported, or a version without this class
                continue
    return known


def find_seeders(roots: Iterable[tuple[str, Any]]) -> tuple[Callable[[int], None], ...]:
    """A function for each object of a known library in ``roots`` (path, object), in a fixed order, that seeds it."""
    known = known_types()
    if not known:
        return ()
    types = tuple(known)
    graph = find_objects(roots, code=True, enter=lambda held: held.depth == 0 or not issubclass(held.kind, types))
    seeders = []
    for held in graph.objects:
        if issubclass(held.kind, types):
            library = next(library for kind, library in known.items() if issubclass(held.kind, kind))
            seeders.append(functools.partial(library.seed, held.value))
    return tuple(seeders)
