"""States of random generators, as they are and as JSON keeps them.

What a loader needs to begin an epoch again as it began: torch's global generator, the generators that a loader and its
samplers were given, and for code that draws from them, NumPy's and Python's. Nothing is unpickled: a state that comes
from a file is numbers, and is checked to be that.
"""

from __future__ import annotations

import binascii
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch

from penstock.errors import StateError
from penstock.sample import State, StateDict
from penstock.workers.rng_states import (
    array_to_text,
    numpy_to_text,
    python_to_text,
    text_to_array,
    text_to_numpy,
    text_to_python,
)

__all__ = ["Randomness", "draw_seed", "generators_of"]


@dataclass(frozen=True, slots=True)
class Randomness:
    """States at one moment; None: not asked for."""

    torch_global: torch.Tensor | None = None  # of torch's default CPU generator
    numpy_global: State = None  # as of ``numpy.random.get_state()``
    python_global: State = None  # as of ``random.getstate()``
    generators: Sequence[torch.Tensor] = ()  # of given generators, in the order of :func:`generators_of`

    @classmethod
    def now(cls, generators: Iterable[torch.Generator] = (), *, of_torch: bool = True, of_others: bool = True) -> Self:
        """The states as they are, copied."""
        return cls(
            torch.default_generator.get_state() if of_torch else None,
            np.random.get_state() if of_others else None,  # noqa: NPY002  # the global one is what is asked for
            random.getstate() if of_others else None,
            [generator.get_state() for generator in generators],
        )

    def of_generators(self) -> Self:
        """The states of given generators alone."""
        return replace(self, torch_global=None, numpy_global=None, python_global=None)

    def restore(self, generators: Sequence[torch.Generator] = (), *, all_given: bool = True) -> None:
        """Put back what is there.

        Parameters
        ----------
        generators : sequence of Generator
            In the order in which their states were taken.
        all_given : bool
            Whether each generator is an argument of its holder. False: a sampler may make its own when it is iterated,
            so that there may be more of them here, or fewer; the first ones are put back.

        Raises
        ------
        StateError
            If there are not as many generators as states of them, or a state is not one.
        """
        if all_given and len(generators) != len(self.generators):
            raise StateError(
                f"the state has {len(self.generators)} generator(s), this loader and its samplers have "
                f"{len(generators)}: its order of samples is another one"
            )
        try:
            if self.torch_global is not None:
                torch.default_generator.set_state(self.torch_global)
            if self.numpy_global is not None:
                np.random.set_state(self.numpy_global)  # noqa: NPY002  # as above
            if self.python_global is not None:
                random.setstate(self.python_global)
            for generator, state in zip(generators, self.generators, strict=False):
                generator.set_state(state)
        except (TypeError, ValueError, RuntimeError) as error:
            raise StateError(f"the state's random generators cannot be restored: {error}") from error

    def equals(self, other: Randomness | None) -> bool:
        """Return whether every state is the same."""
        return other is not None and self.dump() == other.dump()

    def dump(self) -> StateDict:
        """Return the states as JSON keeps them."""
        return {
            "torch": None if self.torch_global is None else array_to_text(self.torch_global.numpy()),
            "numpy": None if self.numpy_global is None else numpy_to_text(self.numpy_global),
            "python": None if self.python_global is None else python_to_text(self.python_global),
            "generators": [array_to_text(state.numpy()) for state in self.generators],
        }

    @classmethod
    def parse(cls, saved: State) -> Self:
        """Return what :meth:`dump` gave.

        Raises StateError if it is damaged.
        """
        try:
            return cls(
                None if saved["torch"] is None else torch.from_numpy(text_to_array(saved["torch"], np.uint8)),
                None if saved["numpy"] is None else text_to_numpy(saved["numpy"]),
                None if saved["python"] is None else text_to_python(saved["python"]),
                [torch.from_numpy(text_to_array(text, np.uint8)) for text in saved["generators"]],
            )
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise StateError(f"the state of random generators is damaged: {error!r:.200}") from error


def draw_seed(generator: torch.Generator | None = None) -> int:
    """Draw 63 bits from a generator; None: from torch's global one."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def generators_of(*holders: object) -> list[torch.Generator]:
    """Return the generators that ``holders`` were given, and what they wrap as ``sampler`` or ``batch_sampler``."""
    found: list[torch.Generator] = []
    for holder in holders:
        inner, depth = holder, 0
        while inner is not None and depth < 8:  # samplers that wrap one another in a ring are no sampler
            generator = getattr(inner, "generator", None)
            if isinstance(generator, torch.Generator) and not any(generator is known for known in found):
                found.append(generator)
            inner, depth = getattr(inner, "sampler", getattr(inner, "batch_sampler", None)), depth + 1
    return found
