"""What code in a worker process can ask about its worker, and the state of the random generators there.

Seeds are those of torch's workers: ``random`` and torch from ``base_seed + worker``, NumPy from a mix of both, so that
a program that changes only its imports draws the same numbers. A worker does not import torch or another framework; it
is seeded when the program imports it. Used inside worker processes; threads share a process and have no number.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
import random
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.frameworks import FRAMEWORKS, Framework, is_imported
from penstock.registry import when_imported
from penstock.sample import Array, DatasetLike

__all__ = ["RngMonitor", "WorkerInfo", "get_worker_info", "restore_rng", "rng_state", "start_as_worker"]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process.

    Parameters
    ----------
    id : int
        0 to ``num_workers - 1``.
    num_workers : int
        Number of worker processes.
    seed : int
        ``base_seed + id``: the seed of ``random`` and torch.
    dataset : object
        This process's copy of the dataset.
    """

    id: int
    num_workers: int
    seed: int
    dataset: DatasetLike


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Return the worker process that the caller runs in; None in the main process and in threads.

    ``torch.utils.data.get_worker_info()`` has the same values there.
    """
    return _info


def start_as_worker(info: WorkerInfo, base_seed: int) -> None:
    """Make this process worker ``info``: seed it as torch seeds its workers, and set up frameworks when imported."""
    global _info  # noqa: PLW0603  # a process is one worker
    _info = info
    random.seed(info.seed)
    np.random.seed(_numpy_seed(base_seed, info.id))  # noqa: NPY002  # user code's own generator, as torch seeds it
    for name, framework in FRAMEWORKS.items():
        if framework.sets_up_workers:
            arguments = (info.id, info.num_workers, info.seed, info.dataset)
            when_imported(name, functools.partial(framework.start_worker, *arguments))


def _numpy_seed(base_seed: int, worker: int) -> Array:
    """Four words mixed by NumPy's SeedSequence from the worker's number and the two halves of the seed."""
    return np.random.SeedSequence([worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]).generate_state(4)


class RngMonitor:
    """Finds out whether the generators that user code draws from have changed: ``random``, NumPy's, the frameworks'.

    A check takes about 20 microseconds; the states are pickled only when they have changed.
    """

    def __init__(self) -> None:
        self._numpy = _NumpyMonitor()
        self._seen = random.getstate(), _framework_states()

    def changed(self) -> bytes | None:
        """Return all states, for :func:`restore_rng`, if any has changed since the last call; else None."""
        seen, numpy_changed = (random.getstate(), _framework_states()), self._numpy.changed()
        if seen == self._seen and not numpy_changed:
            return None
        self._seen = seen
        return pickle.dumps((seen[0], self._numpy.state, *seen[1]))


class _NumpyMonitor:
    """Finds out whether NumPy's global generator has changed, without the slow ``get_state``.

    The words of its state are compared in place. The second number of a pair of normal ones, kept from an earlier draw,
    is not among them: while there is one, the whole state is compared.
    """

    def __init__(self) -> None:
        self._generator: object = None
        self._words = b""
        self.state: tuple[object, ...] = ()
        self.changed()

    def changed(self) -> bool:
        """Return whether it has changed since the last call; then :attr:`state` is new."""
        generator = np.random.mtrand._rand._bit_generator  # noqa: SLF001  # what np.random.* draws from
        known = generator is self._generator and isinstance(generator, np.random.MT19937)
        words = ctypes.string_at(generator.ctypes.state_address, _MT19937_NBYTES) if known else b""
        keeps_one = bool(self.state and self.state[3])
        if known and words == self._words and not keeps_one:
            return False
        before, state = self.state, _numpy_state()
        self._generator, self.state = generator, (state[0], bytes(state[1].data), *state[2:])
        if isinstance(generator, np.random.MT19937):
            self._words = ctypes.string_at(generator.ctypes.state_address, _MT19937_NBYTES)
        return self.state != before


def _numpy_state() -> tuple[str, NDArray[np.uint32], int, int, float]:
    return np.random.get_state(legacy=True)  # type: ignore[return-value]  # noqa: NPY002  # the global one, as a tuple


_MT19937_NBYTES: Final = 625 * 4
"""624 words and the position of the next one."""


def _framework_states() -> tuple[bytes | None, ...]:
    """Return one entry for each framework whose generator can be restored; None if it is not imported."""
    return tuple(FRAMEWORKS[name].rng_state() if is_imported(name) else None for name in _WITH_RNG)


_WITH_RNG: Final = tuple(name for name, each in FRAMEWORKS.items() if type(each).rng_state is not Framework.rng_state)


def rng_state() -> bytes:
    """The present states, for :func:`restore_rng`."""
    return pickle.dumps((random.getstate(), _NumpyMonitor().state, *_framework_states()))


def restore_rng(state: bytes) -> None:
    """Restore the states that :func:`rng_state` or a :class:`RngMonitor` gave; a framework's when it is imported."""
    of_random, of_numpy, *of_frameworks = pickle.loads(state)  # noqa: S301  # made by rng_state, in a worker of this program
    random.setstate(of_random)
    name, key, *rest = of_numpy
    np.random.set_state((name, np.frombuffer(key, np.uint32), *rest))  # noqa: NPY002  # the global one is meant
    for framework, of_framework in zip(_WITH_RNG, of_frameworks, strict=False):
        if of_framework is not None:
            when_imported(framework, functools.partial(FRAMEWORKS[framework].restore_rng, of_framework))
