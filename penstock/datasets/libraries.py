"""Libraries with random generators of their own, and how their objects are found in a dataset and seeded.

Seeding ``random``, ``numpy.random``, torch and cv2 does not reach them. For a loader with ``seed_per_sample`` the
objects of those that are known (:data:`LIBRARIES`, one entry each) are looked for once in each worker, and seeded with
every sample, besides the global generators::

    dataset, collate_fn ──walk──> Compose, ... ──seeders──> called with a seed of its own at each sample's beginning

Found is what the dataset's attributes, containers, closures and the global variables of the user's functions hold,
within the bounds of :mod:`penstock.datasets.walk`. A library is never imported. Nothing that a library's object holds
is seeded besides: it seeds what is in it. ``penstock.torch.check`` names the generators that are left.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.datasets.walk import walk

__all__ = ["LIBRARIES", "Library", "find_seeders", "known_types"]


@dataclass(frozen=True, slots=True)
class Library:
    """A library whose objects draw from generators that they hold.

    Parameters
    ----------
    types : callable
        From the library's module to the classes of its outermost objects.
    seed : callable
        ``seed(object, number)``, with 63 random bits: seeds it, and what is in it.
    """

    types: Callable[[Any], tuple[type, ...]]
    seed: Callable[[Any, int], None]


def _albumentations_types(module: Any) -> tuple[type, ...]:
    kinds = (module.BaseCompose, module.BasicTransform)
    return tuple(kind for kind in kinds if hasattr(kind, "set_random_state"))  # 1.x draws from the global generators


def _seed_albumentations(transform: Any, number: int) -> None:
    # set_random_seed would give each transform in it a generator of the same seed: two flips would always agree
    transform.set_random_state(np.random.default_rng(number), random.Random(number))


def _seed_imgaug(augmenter: Any, number: int) -> None:
    augmenter.seed_(number & 0x7FFFFFFF)


def _seed_monai(transform: Any, number: int) -> None:
    transform.set_random_state(seed=number & 0xFFFFFFFF)


LIBRARIES: Final[dict[str, Library]] = {
    "albumentations": Library(_albumentations_types, _seed_albumentations),
    "imgaug": Library(lambda module: (module.augmenters.Augmenter,), _seed_imgaug),
    "monai": Library(lambda module: (module.transforms.Randomizable,), _seed_monai),
}
"""By the name of the package that is imported."""


def known_types() -> dict[type, Library]:
    """Classes of the libraries that are imported, in the order of :data:`LIBRARIES`."""
    known: dict[type, Library] = {}
    for name, library in LIBRARIES.items():
        if (module := sys.modules.get(name)) is not None:
            try:
                known |= dict.fromkeys(library.types(module), library)
            except AttributeError:  # imported in part, or of a version that has no such class
                continue
    return known


def find_seeders(roots: Iterable[tuple[str, Any]]) -> tuple[Callable[[int], None], ...]:
    """What seeds each object of a known library that ``roots`` (path, object) hold, in an order that they fix."""
    known = known_types()
    if not known:
        return ()
    types = tuple(known)
    graph = walk(roots, code=True, enter=lambda place: place.depth == 0 or not issubclass(place.kind, types))
    seeders = []
    for place in graph.places:
        if issubclass(place.kind, types):
            library = next(library for kind, library in known.items() if issubclass(place.kind, kind))
            seeders.append(functools.partial(library.seed, place.value))
    return tuple(seeders)
