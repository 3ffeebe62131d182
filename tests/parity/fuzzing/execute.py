"""Runs a program with torch's loader or with penstock's, and writes down all that can be seen of it.

An event is a tuple: what the datasets, samplers and functions were asked in the main process, what the consumer got,
each with the states of all random generators at that moment.
"""

from __future__ import annotations

import collections
import copy
import gc
import os
import pickle
import random
import re
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final
from unittest import mock

import numpy as np
import torch
from torch.utils import data
from torch.utils.data import _utils

from tests.parity.fuzzing.build import Built, build
from tests.parity.fuzzing.material import COLLATES, EVENTS, INITS, begin, draw, note

__all__ = ["BATCHES", "Event", "execute", "frozen", "warnings_noted"]

Event = tuple[Any, ...]

BATCHES: Final = 30
"""Most batches that are taken from an iterator: some samplers never end."""
_FAILURES: Final = 12
"""Most errors in a row, after which an iterator is left."""


def execute(program: dict[str, Any], family: str) -> list[Event]:
    """All events of a program, from the same random states each time."""
    seed = program.get("seed", 0)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # the global one is meant
    torch.manual_seed(seed)
    begin()
    with warnings_noted(), _quick_ends(), _closed_once(), _unraisable_noted(family):
        consumer = _Consumer(family)
        consumer.run(program)
        consumer.end()
        del consumer
        gc.collect()
    return list(EVENTS)


@contextmanager
def warnings_noted() -> Iterator[None]:
    """Every warning is an event."""

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        del rest, more
        if "Triggered internally" in str(message):
            return  # torch's core warns once in a process: whoever runs first
        if str(message).startswith("lance is not fork-safe"):
            return  # said at each fork, once a test before has imported it
        note("warned", category.__name__, _scrubbed(str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=ResourceWarning)
        warnings.showwarning = show
        yield


def _quick_ends() -> Any:
    """torch waits this long, five seconds else, for each worker that does not end by itself: some do not."""
    return mock.patch.object(_utils, "MP_STATUS_CHECK_INTERVAL", 0.2)


def _close_once(connection: Any) -> None:
    handle = vars(connection).pop("_handle", None)  # one thread gets it; without a lock, which a fork may copy locked
    if handle is not None:
        os.close(handle)


def _closed_once() -> Any:
    """A connection closes its descriptor once.

    When an iterator of torch's is collected as garbage, this thread and the feeder thread of its queue may both close
    the queue's pipe. The second call closes whatever has got the number since, such as the pipe of another worker.
    """
    return mock.patch.object(Connection, "_close", _close_once)


@contextmanager
def _unraisable_noted(family: str) -> Iterator[None]:
    """An error that Python cannot raise is an event of penstock's run; torch's iterators raise some in workers."""

    def show(what: Any) -> None:
        if family != "torch":
            note("unraisable", repr(what.exc_value), repr(what.object))

    with mock.patch.object(sys, "unraisablehook", show):
        yield


class BrokenHarnessError(BaseException):
    """An error of this module, which no program may take for one of a loader."""


class _Consumer:
    """The program's own part: it makes the loader, and takes batches."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.built = Built()
        self.loader: Any = None
        self.walks: list[Any] = []
        self.kept: list[tuple[Any, str]] = []

    def run(self, program: dict[str, Any]) -> None:
        with self._raised_noted("build"):
            self.built = build(program, self.family)
            self.loader = self.built.loader
        if self.loader is None:
            return
        for number, op in enumerate(program.get("ops", [{"do": "epoch"}])):
            note("op", number, op["do"], self._states())
            with self._raised_noted(op["do"]):
                getattr(self, f"_{op['do']}")(op)

    def end(self) -> None:
        """Batches must be what they were when they came."""
        self.walks.clear()
        note("end", self._states())
        for number, (batch, before) in enumerate(self.kept):
            if frozen(batch) != before:
                note("overwritten", number, before, frozen(batch))
        self.kept.clear()

    # what a consumer does

    def _iter(self, _: dict[str, Any]) -> None:
        self.walks.append(iter(self.loader))
        note("opened", self._states())

    def _next(self, op: dict[str, Any]) -> None:
        walk = self._walk(op)
        for _ in range(op.get("times", 1)):
            if walk is not None and not self._take(walk):
                return

    def _rest(self, op: dict[str, Any]) -> None:
        walk, failures = self._walk(op), 0
        for _ in range(op.get("most", BATCHES) if walk is not None else 0):
            took = self._take(walk)
            failures = 0 if took else failures + 1
            if took is None or failures >= _FAILURES:
                return

    def _epoch(self, op: dict[str, Any]) -> None:
        stop = op.get("stop", BATCHES)
        for number, batch in enumerate(self.loader):
            self._note_batch(batch)
            if number + 1 >= stop:
                break
        note("over", self._states())

    def _drop(self, op: dict[str, Any]) -> None:
        if self.walks:
            self.walks.pop(op.get("walk", 0) % len(self.walks))

    def _len(self, _: dict[str, Any]) -> None:
        note("length", len(self.loader))

    def _len_walk(self, op: dict[str, Any]) -> None:
        note("length of walk", len(self._walk(op)))

    def _peek(self, op: dict[str, Any]) -> None:
        walk = self._walk(op)
        names = ("_num_yielded", "_base_seed", "_num_workers")
        note("peek", *(getattr(walk, name, None) for name in names), iter(walk) is walk)

    def _look(self, _: dict[str, Any]) -> None:
        names = (
            "batch_size",
            "drop_last",
            "num_workers",
            "prefetch_factor",
            "timeout",
            "persistent_workers",
            "in_order",
        )
        note("look", *(repr(getattr(self.loader, name)) for name in names), self.loader._auto_collation)
        note("kinds", *(type(getattr(self.loader, name)).__name__ for name in ("sampler", "batch_sampler")))

    def _draw(self, op: dict[str, Any]) -> None:
        note("drawn", draw(op.get("sources", ["random", "numpy", "torch"])))

    def _seed(self, op: dict[str, Any]) -> None:
        seed = op.get("seed", 1)
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the global one is meant

    def _copy(self, op: dict[str, Any]) -> None:
        how = op.get("how", "pickle")
        self.loader = pickle.loads(pickle.dumps(self.loader)) if how == "pickle" else getattr(copy, how)(self.loader)

    def _set_epoch(self, op: dict[str, Any]) -> None:
        for sampler in self.built.samplers:
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(op.get("epoch", 1))

    def _replace(self, op: dict[str, Any]) -> None:
        if self.loader.batch_sampler is not None:
            self.loader.batch_sampler.sampler = op.get("indices", [0])

    def _resize(self, op: dict[str, Any]) -> None:
        if self.loader.batch_sampler is not None:
            self.loader.batch_sampler.batch_size = op.get("batch_size", 2)

    def _set(self, op: dict[str, Any]) -> None:
        name, value = op.get("name", "collate_fn"), op.get("value")
        tables: dict[str, Any] = {"collate_fn": COLLATES, "worker_init_fn": INITS}
        if name in tables and value is not None:
            value = tables[name][value]
        if name == "generator" and value is not None:
            value = torch.Generator().manual_seed(value)
            self.built.generators.append(value)
        setattr(self.loader, name, value)

    def _change(self, op: dict[str, Any]) -> None:
        """Change a dataset under the loader."""
        if op.get("what", "scale") == "scale":
            for leaf in self.built.leaves:
                leaf.scale = op.get("by", 3)
        for wrapper in self.built.wrappers:
            if op.get("what") == "indices" and isinstance(getattr(wrapper, "indices", None), list):
                wrapper.indices.reverse()
            if op.get("what") == "positions" and isinstance(wrapper, data.Subset):
                wrapper.indices = list(wrapper.indices)[1:]
            if op.get("what") == "tensors" and isinstance(wrapper, data.TensorDataset):
                for tensor in wrapper.tensors:
                    tensor.mul_(op.get("by", 3))

    def _scribble(self, _: dict[str, Any]) -> None:
        """Write into the last batch, which is the consumer's own."""
        if self.kept:
            batch, _before = self.kept[-1]
            _zero(batch)
            self.kept[-1] = batch, frozen(batch)

    def _forget(self, _: dict[str, Any]) -> None:
        self.kept.clear()

    # helpers

    def _walk(self, op: dict[str, Any]) -> Any:
        return self.walks[op.get("walk", 0) % len(self.walks)] if self.walks else None

    def _take(self, walk: Any) -> bool | None:
        """Whether a batch came; None at the end."""
        try:
            batch = next(walk)
        except StopIteration as stopped:
            note("ended", self._states(), str(stopped))
            return None
        except Exception as error:  # noqa: BLE001  # the program goes on, as with torch
            self._note_error("next", error)
            return False
        self._note_batch(batch)
        return True

    def _note_batch(self, batch: Any) -> None:
        kept = frozen(batch)
        self.kept.append((batch, kept))
        note("batch", kept, self._states())

    @contextmanager
    def _raised_noted(self, where: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  # what it is, is compared
            self._note_error(where, error)

    def _note_error(self, where: str, error: BaseException) -> None:
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        marks = sorted(set(re.findall(r"user:[\w@-]+", text)))
        kinds = [kind.__name__ for kind in type(error).__mro__]
        note("raised", where, kinds, _scrubbed(str(error)), marks, self._states())

    def _states(self) -> str:
        """The states of all generators, as a number."""
        state: Any = np.random.get_state()  # noqa: NPY002  # the global one is meant
        parts = [repr(hash(random.getstate())).encode(), state[1].tobytes(), repr(state[2:]).encode()]
        parts += [torch.get_rng_state().numpy().tobytes()]
        parts += [generator.get_state().numpy().tobytes() for generator in self.built.generators]
        return "-".join(f"{zlib.crc32(part):08x}" for part in parts)


def _scrubbed(text: str) -> str:
    text = re.sub(r"0x[0-9a-f]+", "0x", text).split("\n", 1)[0]
    return re.sub(r"\b(torch[._]utils[._]data[._]\w+?|penstock[._]torch[._](?:loader[._])?\w+?)[._](?=\w)", "", text)


def frozen(batch: Any) -> str:
    """All of a batch: types of containers and leaves, dtypes, shapes, every value."""
    try:
        return _frozen(batch)
    except Exception as error:
        raise BrokenHarnessError(f"cannot write down a {type(batch)}") from error


def _frozen(value: Any) -> str:
    name = type(value).__qualname__
    if isinstance(value, torch.Tensor):
        known = (str(value.dtype), tuple(value.shape), value.requires_grad)
        if value.layout != torch.strided:
            return f"{name}{known}{value.layout}{value.detach().to_dense().tolist()!r}"
        return f"{name}{known}{_order(value)}{value.detach().tolist()!r}"
    if isinstance(value, np.ndarray):
        return f"{name}{value.dtype.str}{value.shape}{value.tolist()!r}"
    if isinstance(value, Mapping):
        return f"{name}{{{', '.join(f'{key!r}: {_frozen(item)}' for key, item in value.items())}}}"
    if isinstance(value, (list, tuple, collections.UserList)):
        return f"{name}[{', '.join(map(_frozen, value))}]"
    return f"{name}:{value!r}"


def _order(tensor: torch.Tensor) -> Any:
    """The dimensions as they lie in memory; "loose" if there is something between them."""
    if tensor.is_contiguous():
        return ()
    strides, sizes = tensor.stride(), tensor.shape
    order = sorted(range(tensor.dim()), key=lambda i: (-strides[i], -sizes[i]))
    return tuple(order) if tensor.permute(order).is_contiguous() else "loose"


def _zero(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        if not value.requires_grad and value.layout == torch.strided:
            value.zero_()
    elif isinstance(value, Mapping):
        for item in value.values():
            _zero(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _zero(item)
