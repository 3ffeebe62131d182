"""Who am I: what code that runs in a worker process may ask, and the seeds it starts from.

The seeds are torch's: ``random`` and torch from ``base_seed + worker``, NumPy from a mix of both, so that whoever
changes the import alone draws the same numbers. torch is told only where it is there: a worker that never imports it
is not made to, and one that imports it later is seeded then. Used inside worker processes; threads share a process
and have no number.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import pickle
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np

__all__ = ["RngWatch", "WorkerInfo", "become", "get_worker_info", "restore_rng", "rng_state", "when_torch"]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process.

    Parameters
    ----------
    id : int
        0 to ``num_workers - 1``.
    num_workers : int
        How many there are.
    seed : int
        ``base_seed + id``: what ``random`` and torch were seeded with.
    dataset : object
        This process's copy of the dataset.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The worker process that the caller runs in; None in the main process and in threads.

    ``torch.utils.data.get_worker_info()`` says the same there.
    """
    return _info


def become(info: WorkerInfo, base_seed: int) -> None:
    """Make this process worker ``info``: told to whoever asks, and seeded as torch seeds its workers."""
    global _info  # noqa: PLW0603  # a process is one worker
    _info = info
    random.seed(info.seed)
    np.random.seed(_numpy_seed(base_seed, info.id))  # noqa: NPY002  # user code's own generator, as torch seeds it
    when_torch(_tell_torch)


def _numpy_seed(base_seed: int, worker: int) -> Any:
    """Four words mixed by NumPy's SeedSequence from the worker's number and the two halves of the seed."""
    return np.random.SeedSequence([worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]).generate_state(4)


def _tell_torch(torch: Any) -> None:
    assert _info is not None, "become() comes first"
    torch.set_num_threads(1)
    torch.default_generator.manual_seed(_info.seed)
    from_torch = torch.utils.data._utils.worker  # noqa: SLF001  # where torch's own get_worker_info looks
    from_torch._worker_info = from_torch.WorkerInfo(  # noqa: SLF001  # as above
        id=_info.id, num_workers=_info.num_workers, seed=_info.seed, dataset=_info.dataset
    )


class RngWatch:
    """Says when the generators that user code may draw from have moved: ``random``, NumPy's global one, torch's.

    Looking costs some 20 microseconds a batch; only what has moved is pickled.
    """

    def __init__(self) -> None:
        self._numpy = _NumpyWatch()
        self._seen = random.getstate(), _torch_state()

    def changed(self) -> bytes | None:
        """All states, for :func:`restore_rng`, if any differs from the last time; else None."""
        seen, of_numpy = (random.getstate(), _torch_state()), self._numpy.changed()
        if seen == self._seen and not of_numpy:
            return None
        self._seen = seen
        return pickle.dumps((seen[0], self._numpy.state, seen[1]))


class _NumpyWatch:
    """NumPy's global generator; asking it for its whole state costs more than many a batch.

    So its words are compared where they lie. A second number of a pair of normal ones, kept from an earlier draw, is
    not among them: while there is one, it is asked all the same.
    """

    def __init__(self) -> None:
        self._generator: Any = None
        self._words = b""
        self.state: tuple[Any, ...] = ()
        self.changed()

    def changed(self) -> bool:
        """Whether it has moved since the last time; then :attr:`state` is new."""
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


def _numpy_state() -> tuple[Any, ...]:
    state: Any = np.random.get_state()  # noqa: NPY002  # the global one is what is asked for
    return tuple(state)


_MT19937_NBYTES: Final = 625 * 4
"""624 words and the place of the next one."""


def _torch_state() -> bytes | None:
    torch = sys.modules.get("torch")
    if torch is None or _waiting:
        return None
    state: bytes = torch.default_generator.get_state().numpy().tobytes()
    return state


def rng_state() -> bytes:
    """The states as they are, for :func:`restore_rng`."""
    return pickle.dumps((random.getstate(), _NumpyWatch().state, _torch_state()))


def restore_rng(state: bytes) -> None:
    """Undo what was drawn since ``state`` was taken, by :func:`rng_state` or a :class:`RngWatch`."""
    of_random, of_numpy, of_torch = pickle.loads(state)  # noqa: S301  # made by rng_state, in a worker of this program
    random.setstate(of_random)
    name, key, *rest = of_numpy
    np.random.set_state((name, np.frombuffer(key, np.uint32), *rest))  # noqa: NPY002  # as above
    if of_torch is not None:
        when_torch(
            lambda torch: torch.default_generator.set_state(torch.frombuffer(bytearray(of_torch), dtype=torch.uint8))
        )


_waiting: list[Callable[[Any], None]] = []


def when_torch(act: Callable[[Any], None]) -> None:
    """Call ``act(torch)`` now if torch is imported, else as soon as it is."""
    torch = sys.modules.get("torch")
    if torch is not None and not _waiting:
        act(torch)
        return
    if not _waiting:
        sys.meta_path.insert(0, _WhenTorch())
    _waiting.append(act)


class _WhenTorch(importlib.abc.MetaPathFinder):
    """Finds torch by the other finders, and has what waits for it done after its import.

    It stays on ``sys.meta_path`` until an import of torch succeeds: ``importlib.util.find_spec("torch")`` only asks.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        loader, execute = spec.loader, spec.loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            execute(module)
            loader.__dict__.pop("exec_module", None)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            acts = _waiting[:]
            _waiting.clear()
            for act in acts:
                act(module)

        loader.exec_module = execute_and_tell  # type: ignore[method-assign]  # this spec's own loader
        return spec
