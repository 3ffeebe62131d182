"""States of random generators, as they are and as JSON keeps them.

What a loader needs to begin an epoch again as it began: torch's global generator, the generators that a loader and its
samplers were given, and for code that draws from them, NumPy's and Python's. Nothing is unpickled: a state that comes
from a file is numbers, and is checked to be that.
"""

from __future__ import annotations

import base64
import binascii
import pickle
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch

from penstock.errors import StateError

__all__ = ["Randomness", "generators_of", "kept", "worker_bytes", "worker_state"]


@dataclass(frozen=True, slots=True)
class Randomness:
    """States at one moment; None: not asked for.

    Parameters
    ----------
    torch_global : Tensor, shape (n,), uint8, optional
        Of torch's default CPU generator.
    numpy_global : tuple, optional
        As of ``numpy.random.get_state()``.
    python_global : tuple, optional
        As of ``random.getstate()``.
    generators : sequence of Tensor
        Of given generators, in the order of :func:`generators_of`.
    """

    torch_global: torch.Tensor | None = None
    numpy_global: Any = None
    python_global: Any = None
    generators: Sequence[torch.Tensor] = ()

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
        """Whether every state is the same."""
        return other is not None and self.dump() == other.dump()

    def dump(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return {
            "torch": None if self.torch_global is None else _text(self.torch_global.numpy()),
            "numpy": None if self.numpy_global is None else _numpy_text(self.numpy_global),
            "python": None if self.python_global is None else _python_text(self.python_global),
            "generators": [_text(state.numpy()) for state in self.generators],
        }

    @classmethod
    def parse(cls, saved: Any) -> Self:
        """What :meth:`dump` gave.

        Raises
        ------
        StateError
            If it is damaged.
        """
        try:
            return cls(
                None if saved["torch"] is None else torch.from_numpy(_array(saved["torch"], np.uint8)),
                None if saved["numpy"] is None else _numpy_state(saved["numpy"]),
                None if saved["python"] is None else _python_state(saved["python"]),
                [torch.from_numpy(_array(text, np.uint8)) for text in saved["generators"]],
            )
        except (TypeError, KeyError, ValueError, binascii.Error) as error:
            raise StateError(f"the state of random generators is damaged: {error!r:.200}") from error


def generators_of(*holders: Any) -> list[torch.Generator]:
    """The generators that ``holders`` were given, and what they wrap as ``sampler``, each once."""
    found: list[torch.Generator] = []
    for holder in holders:
        inner, depth = holder, 0
        while inner is not None and depth < 8:  # samplers that wrap one another in a ring are no sampler
            generator = getattr(inner, "generator", None)
            if isinstance(generator, torch.Generator) and not any(generator is known for known in found):
                found.append(generator)
            inner, depth = getattr(inner, "sampler", None), depth + 1
    return found


@contextmanager
def kept() -> Iterator[None]:
    """Global generators are afterwards as they were before."""
    before = Randomness.now()
    try:
        yield
    finally:
        before.restore()


def worker_state(pickled: bytes | None) -> dict[str, Any] | None:
    """A worker's generators, as :attr:`penstock.workers.Done.rng` has them, as JSON keeps them."""
    if pickled is None:
        return None
    of_random, of_numpy, of_torch = pickle.loads(pickled)  # noqa: S301  # it came from a worker of this program
    state = None if of_torch is None else torch.frombuffer(bytearray(of_torch), dtype=torch.uint8)
    kind, key, *rest = of_numpy
    of_numpy = (kind, np.frombuffer(key, np.uint32), *rest)
    return Randomness(state, of_numpy, of_random).dump()


def worker_bytes(saved: Mapping[str, Any] | None) -> bytes | None:
    """What :func:`worker_state` gave, as :class:`penstock.loader.jobs.Opening` takes it."""
    if saved is None:
        return None
    state = Randomness.parse(saved)
    if state.numpy_global is None or state.python_global is None:
        raise StateError("the state of a worker's random generators is not complete")
    of_torch = None if state.torch_global is None else state.torch_global.numpy().tobytes()
    kind, key, *rest = state.numpy_global
    return pickle.dumps((state.python_global, (kind, key.tobytes(), *rest), of_torch))


def _text(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _array(text: str, dtype: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(bytearray(base64.b64decode(text, validate=True)), dtype)


def _numpy_text(state: Any) -> list[Any]:
    kind, key, position, has_gauss, gauss = state
    return [str(kind), _text(np.asarray(key, "<u4")), int(position), int(has_gauss), float(gauss)]


def _numpy_state(saved: Any) -> Any:
    kind, key, position, has_gauss, gauss = saved
    return str(kind), _array(key, "<u4").astype(np.uint32), int(position), int(has_gauss), float(gauss)


def _python_text(state: Any) -> list[Any]:
    version, words, gauss = state
    return [version, _text(np.asarray(words, "<u4")), gauss]


def _python_state(saved: Any) -> Any:
    version, words, gauss = saved
    return int(version), tuple(_array(words, "<u4").tolist()), None if gauss is None else float(gauss)
