"""States of global random generators in worker processes, as workers send them and as JSON keeps them.

Nothing is unpickled that comes from a file: a state is numbers, and is checked to be that.
"""

from __future__ import annotations

import base64
import binascii
import pickle

import numpy as np
from numpy.typing import DTypeLike, NDArray

from penstock.errors import StateError
from penstock.sample import Array, State

__all__ = [
    "array_to_text", "dump_worker_rng", "numpy_to_text", "parse_worker_rng", "python_to_text", "text_to_array",
    "text_to_numpy", "text_to_python",
]  # fmt: skip


def dump_worker_rng(pickled: bytes | None) -> dict[str, object] | None:
    """Return a worker's generators, as :attr:`penstock.workers.TaskResult.rng`, as JSON keeps them."""
    if pickled is None:
        return None
    of_python, (kind, key, *rest), of_torch = pickle.loads(pickled)  # noqa: S301  # it came from a worker of this program
    return {
        "torch": None if of_torch is None else array_to_text(np.frombuffer(of_torch, np.uint8)),
        "numpy": numpy_to_text((kind, np.frombuffer(key, np.uint32), *rest)),
        "python": python_to_text(of_python),
        "generators": [],
    }


def parse_worker_rng(saved: State) -> bytes | None:
    """Return what :func:`dump_worker_rng` was given, for :class:`penstock.workers.jobs.WorkerStart`.

    Raises StateError if it is damaged.
    """
    if saved is None:
        return None
    try:
        kind, key, *rest = text_to_numpy(saved["numpy"])
        of_torch = None if saved["torch"] is None else text_to_array(saved["torch"], np.uint8).tobytes()
        return pickle.dumps((text_to_python(saved["python"]), (kind, key.tobytes(), *rest), of_torch))
    except (TypeError, KeyError, ValueError, binascii.Error) as error:
        raise StateError(f"the state of a worker's random generators is damaged: {error!r:.200}") from error


def array_to_text(array: Array) -> str:
    """Return the bytes of an array in base64."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def text_to_array(text: str, dtype: DTypeLike) -> Array:
    """Return the inverse of :func:`array_to_text`; one dimension, writable."""
    found: Array = np.frombuffer(bytearray(base64.b64decode(text, validate=True)), dtype)
    return found


def numpy_to_text(state: State) -> list[object]:
    """``numpy.random.get_state()`` as JSON keeps it."""
    kind, key, position, has_gauss, gauss = state
    return [str(kind), array_to_text(np.asarray(key, "<u4")), int(position), int(has_gauss), float(gauss)]


def text_to_numpy(saved: State) -> tuple[str, NDArray[np.uint32], int, int, float]:
    """Decode a state that :func:`numpy_to_text` has encoded."""
    kind, key, position, has_gauss, gauss = saved
    return str(kind), text_to_array(key, "<u4").astype(np.uint32), int(position), int(has_gauss), float(gauss)


def python_to_text(state: State) -> list[object]:
    """``random.getstate()`` as JSON keeps it."""
    version, words, gauss = state
    return [version, array_to_text(np.asarray(words, "<u4")), gauss]


def text_to_python(saved: State) -> tuple[int, tuple[int, ...], float | None]:
    """Decode a state that :func:`python_to_text` has encoded."""
    version, words, gauss = saved
    return int(version), tuple(text_to_array(words, "<u4").tolist()), None if gauss is None else float(gauss)
