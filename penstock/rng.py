"""Random numbers of samples: counter-based, with the key (seed, epoch, index).

Ops draw for a whole chunk at once by :func:`uniforms`. This NumPy code is the specification; the native core computes
the same numbers. User code calls :func:`generator` (``penstock.rng()``) inside ``__getitem__``, a transform or
``collate_fn`` and gets the ``numpy.random.Generator`` of the current sample or batch.

::

    sample_scope(seed, epoch, index) ──┬── generator()    one for the sample, made at the first call
      (entered again for the same      └── next_keys()    the sample's key for a pipeline; another one at each call
       sample: continues)

Code that draws from global generators (``random``, ``numpy.random``, torch's, cv2's) uses no keys. Inside
:func:`seeding_globals` these generators are seeded at the beginning of each sample and each collation, and with them
other generators that the caller names.

Philox4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import contextvars
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError
from penstock.frameworks import imported_frameworks
from penstock.sample import Array, SampleKeys

__all__ = [
    "batch_scope",
    "derive_keys",
    "generator",
    "globals_put_back",
    "next_keys",
    "philox4x32",
    "sample_scope",
    "seed_batch",
    "seeding_globals",
    "seeds_globals",
    "undisturbed",
    "uniforms",
]

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW: Final = np.uint64(0xFFFFFFFF)
_WORD: Final = 0xFFFFFFFFFFFFFFFF
_GOLDEN: Final = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, odd: its multiples are spread over all 64-bit numbers."""
_current: contextvars.ContextVar[_Scope | None] = contextvars.ContextVar("penstock-scope", default=None)
_seeding: contextvars.ContextVar[_Seeding | None] = contextvars.ContextVar("penstock-seeding", default=None)

_turn = threading.RLock()
"""The process has one set of global generators: threads that seed them take turns, sample by sample."""


def _renew_turn() -> None:
    """Make another lock in a forked child, which does not have the thread that may hold this one."""
    global _turn  # noqa: PLW0603  # one for the process
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_turn)


def philox4x32(counter: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Compute Philox4x32-10.

    Parameters
    ----------
    counter : ndarray, shape (n, 4), uint64
        Four 32-bit words each.
    key : tuple of two int
        Two 32-bit words.

    Returns
    -------
    ndarray, shape (n, 4), uint64
        Four 32-bit words each; a new array.
    """
    c0, c1, c2, c3 = (counter[:, i].copy() for i in range(4))
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1)


def uniforms(keys: SampleKeys, stream: int, count: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) for each sample of a chunk.

    Parameters
    ----------
    keys : SampleKeys
        ``n`` samples.
    stream : int
        Number of the consumer (the op's position in its pipeline), 0 to 65535; streams are independent.
    count : int
        Numbers per sample, at most 65536.

    Returns
    -------
    ndarray, shape (n, count), float64
        53 random bits each; row ``i`` depends on (seed, epoch, indices[i], stream) only, and a longer
        row begins with the shorter one.

    Raises
    ------
    ArgumentError
        If ``stream`` or ``count`` is out of range.

    Notes
    -----
    Counter words: index low, index high, epoch, stream << 16 | block; key: seed low, seed high. A block of
    four words makes two numbers: ``((w0 << 32 | w1) >> 11) * 2**-53`` and the same of w2, w3.
    """
    if not (0 <= stream < 1 << 16 and 0 <= count <= 1 << 16):
        raise ArgumentError(f"stream must be in [0, 65535] and count in [0, 65536], got {stream} and {count}")
    blocks = (count + 1) // 2
    n = len(keys)
    index = keys.indices.astype(np.int64).view(np.uint64)
    counter = np.empty((n, blocks, 4), np.uint64)
    counter[:, :, 0] = (index & _LOW)[:, None]
    counter[:, :, 1] = (index >> np.uint64(32))[:, None]
    counter[:, :, 2] = keys.epoch & 0xFFFFFFFF
    counter[:, :, 3] = np.uint64(stream << 16) | np.arange(blocks, dtype=np.uint64)
    words = philox4x32(counter.reshape(n * blocks, 4), (keys.seed & 0xFFFFFFFF, keys.seed >> 32 & 0xFFFFFFFF))
    wide = (words[:, 0::2] << np.uint64(32) | words[:, 1::2]) >> np.uint64(11)
    return (wide * np.float64(2.0**-53)).reshape(n, blocks * 2)[:, :count]


def derive_keys(keys: SampleKeys, count: int) -> SampleKeys:
    """Keys of ``count`` parts of each sample, sample by sample, for samples that are made of others.

    Parameters
    ----------
    keys : SampleKeys
        ``n`` samples.
    count : int
        Parts of each sample.

    Returns
    -------
    SampleKeys
        ``n * count`` keys with the same seed and epoch. The index of each is a number of 63 bits that depends on the
        sample's index and the number of the part only; the parts of a part have other numbers again.

    Notes
    -----
    The finaliser of SplitMix64, applied twice. G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
    generators", OOPSLA 2014.
    """
    samples = _mixed(keys.indices.astype(np.int64).view(np.uint64) + np.uint64(_GOLDEN))
    parts = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    numbers = _mixed(samples[:, None] + parts) >> np.uint64(1)
    return SampleKeys(keys.seed, keys.epoch, numbers.view(np.int64).reshape(-1))


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class _Scope:
    """The sample or batch that is being built in this thread while the body runs, and its random numbers.

    If it is entered for the sample that is being built already, the outer scope continues.
    """

    __slots__ = ("_calls", "_generator", "_key", "_seeded", "_token")
    kind: ClassVar[int]
    """Part of the seed of global generators."""

    _generator: np.random.Generator
    _calls: int

    def __init__(self, seed: int, epoch: int, number: int) -> None:
        self._key = seed, epoch, number  # entered for every sample: the rest, which few use, is made when needed

    def __enter__(self) -> None:
        self._token: contextvars.Token[_Scope | None] | None = None
        self._seeded: AbstractContextManager[None] | None = None
        outer = _current.get()
        if outer is not None and outer._key == self._key and outer.kind == self.kind:  # noqa: SLF001  # of this class
            return
        if _seeding.get() is not None:
            self._seeded = _seeded(*self._key, self.kind)
            self._seeded.__enter__()
        self._token = _current.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
        if self._seeded is not None:
            self._seeded.__exit__(kind, error, trace)

    def generator(self) -> np.random.Generator:
        """Return the generator of this scope."""
        try:
            return self._generator
        except AttributeError:
            seed, epoch, number = self._key
            # Drawing increments counter word 0. Bit 63 separates these streams from those of ops, bit 62 batches from
            # samples.
            high = epoch & 0xFFFFFFFF | 1 << 63 | self.kind << 62
            counter = np.array([0, 0, number & _WORD, high], np.uint64)
            key = np.array([seed & _WORD, 1], np.uint64)
            self._generator = np.random.Generator(np.random.Philox(counter=counter, key=key))
            return self._generator

    def next_keys(self) -> SampleKeys | None:
        """Return the keys of the sample's next call of :func:`next_keys`."""
        seed, epoch, number = self._key
        calls = getattr(self, "_calls", 0)
        self._calls = calls + 1
        return SampleKeys((seed + calls * _GOLDEN) & _WORD, epoch, np.array([number], np.int64))


class sample_scope(_Scope):  # noqa: N801  # a context manager, written as one; entered once for every sample
    """Make (seed, epoch, index) the current sample of this thread while the body runs."""

    __slots__ = ()
    kind: ClassVar[int] = 0


class batch_scope(_Scope):  # noqa: N801  # as sample_scope
    """Make (seed, epoch, number) the current batch of this thread, for collation; there is no current sample."""

    __slots__ = ()
    kind: ClassVar[int] = 1

    def next_keys(self) -> SampleKeys | None:
        """Return None: there is no current sample."""
        return None


class _Seeding(NamedTuple):
    put_back: bool
    others: Sequence[Callable[[int], None]]


@contextmanager
def seeding_globals(*, put_back: bool, others: Sequence[Callable[[int], None]] = ()) -> Iterator[None]:
    """While the body runs, each :func:`sample_scope` seeds the global generators from its sample's key.

    These are ``random``, ``numpy.random``, and those of frameworks that are imported: torch's for the CPU, and cv2's.

    Parameters
    ----------
    put_back : bool
        Whether other code of the process uses these generators: one sample at a time is then built, in any thread, and
        the states are restored after it (but cv2's, which cannot be). False: the process is a worker.
    others : sequence of callable
        Functions that seed other generators; each is called with 63 bits of its own. Their states are not restored.
    """
    token = _seeding.set(_Seeding(put_back, others))
    try:
        yield
    finally:
        _seeding.reset(token)


def seeds_globals() -> bool:
    """Return whether the caller runs inside :func:`seeding_globals`."""
    return _seeding.get() is not None


@contextmanager
def undisturbed() -> Iterator[None]:
    """While the body runs, no other thread seeds global generators for a sample."""
    with _turn:
        yield


@contextmanager
def _seeded(seed: int, epoch: int, number: int, kind: int) -> Iterator[None]:
    """Seed global generators with the key of a sample (``kind`` 0) or of a batch (1)."""
    how = _seeding.get()
    assert how is not None, "entered only inside seeding_globals"
    if not how.put_back:
        _seed_globals(seed, epoch, number, kind, how.others)
        yield
        return
    with _turn, globals_put_back():
        _seed_globals(seed, epoch, number, kind, how.others)
        yield


@contextmanager
def globals_of_sample(others: Sequence[Callable[[int], None]] = ()) -> Iterator[None]:
    """Seed the global generators from the current sample's key while the body runs, and restore them.

    For code of other libraries that a dataset runs for each sample. Nothing is seeded outside a sample; where the
    loader seeds the global generators, as ``seed_per_sample`` asks for, only ``others`` are, by the same numbers.

    ``others``: further generators: each is called with a seed of 63 bits. They are not restored.
    """
    keys = next_keys()
    if keys is None:
        yield
        return
    key = keys.seed, keys.epoch, int(keys.indices[0]), sample_scope.kind
    if _seeding.get() is not None:
        _seed_others(_seed_words(*key, len(others)), others)
        yield
        return
    with _turn, globals_put_back():
        _seed_globals(*key, others)
        yield


@contextmanager
def globals_put_back() -> Iterator[None]:
    """Restore the states of ``random``, ``numpy.random`` and the frameworks' generators when the body has ended."""
    of_random, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # the global one is meant
    of_frameworks = [(framework, framework.rng_state()) for framework in imported_frameworks()]
    try:
        yield
    finally:
        random.setstate(of_random)
        np.random.set_state(of_numpy)  # noqa: NPY002  # as above
        for framework, state in of_frameworks:
            if state is not None:
                framework.restore_rng(state)


def _seed_globals(seed: int, epoch: int, number: int, kind: int, others: Sequence[Callable[[int], None]]) -> None:
    words = _seed_words(seed, epoch, number, kind, len(others))
    random.seed(words[0:2].tobytes())
    np.random.seed(words[2:6])  # noqa: NPY002  # the global one is meant
    for framework in imported_frameworks():
        framework.seed(words[framework.seed_words])
    _seed_others(words, others)


def seed_batch(keys: SampleKeys, number: int, others: Sequence[Callable[[int], None]] = ()) -> None:
    """Seed the global generators of a worker process, and ``others``, for a batch: from its number and first sample."""
    first = int(keys.indices[0]) if len(keys) else 0  # the same batch of another rank has another one
    _seed_globals(keys.seed + first * _GOLDEN & _WORD, keys.epoch, number, 2, others)


def _seed_words(seed: int, epoch: int, number: int, kind: int, others: int) -> Array:
    halves = (half & 0xFFFFFFFF for word in (seed, epoch, number) for half in (word, word >> 32))
    return np.random.SeedSequence([*halves, kind]).generate_state(9 + 2 * others)


def _seed_others(words: Array, others: Sequence[Callable[[int], None]]) -> None:
    for position, other in enumerate(others):
        other(int(words[9 + 2 * position]) << 31 | int(words[10 + 2 * position]) >> 1)


def next_keys() -> SampleKeys | None:
    """The current sample's key as a chunk of one, for a pipeline that draws; None outside a sample.

    The first call returns the key with which filled rows are drawn. Each further call for the same sample returns
    another key, so that two pipelines of one sample draw different numbers: the seed plus a multiple of a constant.
    """
    scope = _current.get()
    return None if scope is None else scope.next_keys()


def generator() -> np.random.Generator:
    """Return the random generator of what is being built, as ``penstock.rng()``.

    Returns
    -------
    numpy.random.Generator
        In ``__getitem__`` and transforms: the sample's, a Philox generator with the key (seed, epoch, index). In
        ``collate_fn``: the batch's, with the key (seed, epoch, number of the batch). It draws the same numbers for any
        number and kind of workers, and after a resume. All calls within one sample (or batch) return the same
        generator.

    Raises
    ------
    ArgumentError
        If no penstock loader is building a sample or batch in this thread.
    """
    scope = _current.get()
    if scope is None:
        raise ArgumentError(
            "penstock.rng() must be called inside __getitem__, a transform or collate_fn that a penstock loader runs: "
            "there is no current sample here"
        )
    return scope.generator()
