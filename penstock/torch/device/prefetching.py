"""Batches on the device before they are asked for: copied on a side stream while the current one is used.

::

    loader --host batch--> side stream: wait once; copy; transform; event ──┐
                                                                            │ (at most `depth` ahead)
    training step <--batch-- current stream: wait for the event <-----------┘
                   each device tensor: record_stream(current)      its memory is not reused under the step
                   host batch: kept until the event is done        its slot is not refilled under the copy

No thread: copies are asynchronous, so the thread that iterates queues the next ones before it hands one over. The
pattern is that of the prefetchers of NVIDIA's apex and of timm, for batches of any structure. A device without streams
(the CPU, MPS) gets a plain copy when a batch is asked for.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from penstock.samplers.base import checked_count
from penstock.torch.device.batches import tensors_of, to_device
from penstock.torch.loader.dataloader import DataLoader

__all__ = ["Prefetcher", "prefetch"]

_logger = logging.getLogger(__name__)


def prefetch(
    loader: Iterable[Any],
    device: torch.device | str | int,
    *,
    transform: Callable[[Any], Any] | None = None,
    depth: int = 2,
    non_blocking: bool = True,
) -> Prefetcher:
    """Iterate ``loader`` with its batches on ``device``, copied ahead of their use.

    Parameters
    ----------
    loader : iterable
        Any loader. Copies overlap with computation only out of page-locked memory: ``pin_memory=True``.
    device : torch.device or str or int
        Where batches go. On ``"cpu"`` they stay as they are, and only ``transform`` is applied.
    transform : callable, optional
        From batch to batch, on the device and beside the training step, for what need not be done on the CPU and is
        smaller before than after, such as
        :func:`~penstock.torch.device.normalizing.normalize_on_device`.
    depth : int
        Batches that are copied ahead of the one in use; each takes its device memory.
    non_blocking : bool
        False: each copy is finished before the program goes on.

    Returns
    -------
    Prefetcher
        Iterable once per epoch, like ``loader``; its ``state_dict`` counts what it handed over.

    Raises
    ------
    ArgumentError
        If ``depth`` is no positive number.

    Examples
    --------
    ::

        loader = DataLoader(dataset, batch_size=256, num_workers=8, pin_memory=True)
        for images, labels in prefetch(loader, "cuda"):
            ...
    """
    depth = checked_count("depth", depth, least=1)
    return Prefetcher(loader, torch.device(device), transform, depth, non_blocking=non_blocking)


class Prefetcher:
    """What :func:`prefetch` returns: the loader, with batches on a device.

    Parameters
    ----------
    loader, device, transform, depth, non_blocking
        As for :func:`prefetch`.
    streams : object, optional
        Stands for the device's streams in tests.

    Notes
    -----
    Tensors belong to the user, and are safe on the stream that was current when the batch was handed over. An
    iterator stops its loader's when it is closed or forgotten (a ``break``). Not thread-safe, and not for pickling:
    pickle the loader's ``state_dict``.
    """

    def __init__(
        self,
        loader: Any,
        device: torch.device,
        transform: Callable[[Any], Any] | None = None,
        depth: int = 2,
        *,
        non_blocking: bool = True,
        streams: Any = None,
    ) -> None:
        self.loader, self.device, self.transform, self.depth = loader, device, transform, depth
        self.non_blocking = non_blocking
        self._streams = streams
        self._position = _Position()

    def __iter__(self) -> Iterator[Any]:
        source = iter(self.loader)  # first: workers that are forked are forked from a process without CUDA
        self._position = _Position()
        return _Walk(self.loader, source, self._copier(), self._position)

    def __len__(self) -> int:
        """As the loader's."""
        return len(self.loader)

    def __reduce__(self) -> Any:
        raise NotImplementedError("a Prefetcher cannot be pickled; pickle its state_dict(), or its loader")

    def state_dict(self) -> dict[str, Any]:
        """The loader's state behind the batch that was handed over last, whatever was copied ahead of it.

        Before the first batch and behind the last one it is the loader's own.
        """
        if self._position.state is not None:
            return self._position.state()
        return self.loader.state_dict()  # type: ignore[no-any-return]  # a user's loader

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The loader's; the next ``iter()`` goes on there."""
        self.loader.load_state_dict(state)
        self._position = _Position()

    def set_epoch(self, epoch: int) -> None:
        """The loader's, for the next ``iter()``."""
        self.loader.set_epoch(epoch)
        self._position = _Position()

    def stats(self) -> Any:
        """The loader's."""
        return self.loader.stats()

    def _copier(self) -> _Copier:
        streams = self._streams or _streams(self.device)
        if streams is None:
            return _InPlace(self.device, self.transform)
        return _OnSideStream(streams, self.transform, self.depth, non_blocking=self.non_blocking)


@dataclass(slots=True)
class _Position:
    """Where the newest iterator stands; an older one writes into its own, which nobody reads."""

    state: Callable[[], dict[str, Any]] | None = None


@dataclass(slots=True)
class _Copy:
    """A batch under way to the user, or why it is not; ``host`` is what it is copied from."""

    batch: Any = None
    event: Any = None
    host: Any = None
    state: Callable[[], dict[str, Any]] | None = None
    error: Exception | None = None


class _Walk:
    """One epoch of a prefetcher, which does not hold it."""

    def __init__(self, loader: Any, source: Iterator[Any], copier: _Copier, position: _Position) -> None:
        self._loader, self._source, self._copier, self._position = loader, source, copier, position
        self._ahead: deque[_Copy] = deque()
        self._handed = 0
        self._ended = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        # The first batch waits for no other; from then on one more is drawn with each, until `depth` are ahead.
        wanted = min(self._copier.depth, self._handed) + 1
        while len(self._ahead) < wanted and not self._ended and not self._failed():
            self._draw()
        if not self._ahead:
            self._position.state = None
            self._copier.finish(self._ahead)
            raise StopIteration
        ready = self._ahead.popleft()
        self._position.state = ready.state
        self._handed += 1
        batch, error = (self._copier.hand_over(ready) if ready.error is None else None), ready.error
        # An error keeps the frames of the call that drew it, which may be this one, for as long as somebody keeps its
        # traceback (a notebook does): they must not keep the loader's workers by `self`, nor a batch, nor the error.
        del self, ready
        try:
            if error is not None:
                raise error
            return batch
        finally:
            del batch, error

    def close(self) -> None:
        """End now: drop what was copied ahead, and close the loader's iterator if that can be. Idempotent."""
        self._ended = True
        self._copier.finish(self._ahead)
        source, self._source = self._source, iter(())
        if hasattr(source, "close"):
            source.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing() or not hasattr(self, "_ahead"):
            return
        try:
            self._copier.finish(self._ahead)
        except RuntimeError as failed:  # the device is lost, and has said so; a finaliser can raise to nobody
            _logger.debug("copies under way could not be waited for: %s", failed)

    def _failed(self) -> bool:
        """Whether the last one drawn is an error: what the loader has behind it is asked for when it was raised."""
        return bool(self._ahead) and self._ahead[-1].error is not None

    def _state(self) -> Callable[[], dict[str, Any]] | None:
        """What gives the loader's state as it is now; None where it has none."""
        if getattr(type(self._loader), "state_dict", None) is DataLoader.state_dict:
            mark = self._loader._defer_state()  # noqa: SLF001  # a state is written down only if it is asked for
            return None if mark is None else mark.state
        if not hasattr(self._loader, "state_dict"):
            return None
        state = self._loader.state_dict()
        return lambda: copy.deepcopy(state)

    def _draw(self) -> None:
        drawn, host = _Copy(), None
        try:
            host = next(self._source)
        except StopIteration:
            self._ended = True
            return
        except Exception as error:  # noqa: BLE001  # raised in its turn: the batches before it are good
            drawn.error = error
        drawn.state = self._state()
        if drawn.error is None:
            try:
                drawn.batch, drawn.event, drawn.host = self._copier.copy(host)
            except Exception as error:  # noqa: BLE001  # as above
                drawn.error = error
        self._ahead.append(drawn)
        del self, drawn, host  # as in __next__


class _Copier(Protocol):
    """How a batch gets to the device."""

    depth: int

    def copy(self, host: Any) -> tuple[Any, Any, Any]:
        """Begin; the batch, the event behind it, and what is to be held until then."""
        ...

    def hand_over(self, done: _Copy) -> Any:
        """Make the batch safe to use."""
        ...

    def finish(self, dropped: deque[_Copy]) -> None:
        """Wait until no host memory is read any more, and empty ``dropped``: copies that will not be handed over."""
        ...


class _InPlace:
    """For a device without streams: moved when it is asked for, not at all on the CPU."""

    depth = 0

    def __init__(self, device: torch.device, transform: Callable[[Any], Any] | None) -> None:
        self._device, self._transform = device, transform

    def copy(self, host: Any) -> tuple[Any, Any, Any]:
        batch = host if self._device.type == "cpu" else to_device(host, self._device, non_blocking=False)
        return (batch if self._transform is None else self._transform(batch)), None, None

    def hand_over(self, done: _Copy) -> Any:
        return done.batch

    def finish(self, dropped: deque[_Copy]) -> None:
        dropped.clear()


class _OnSideStream:
    """For a device with streams; each rule has its test in ``tests/torch/device/test_prefetch.py``.

    - the side stream waits, once, for what was queued before the iteration (a transform's parameters, for one), and
      again only for a batch that lies on the device already;
    - a batch is handed over only behind its event, on the stream that is current at that moment, and each of its
      tensors is recorded there;
    - host memory is held until the event is done, and let go while the side stream is the current one, so that a slot
      waits for copies alone, and not for the training step.
    """

    def __init__(
        self, streams: _Streams, transform: Callable[[Any], Any] | None, depth: int, *, non_blocking: bool
    ) -> None:
        self.depth = depth
        self._streams, self._transform, self._non_blocking = streams, transform, non_blocking
        self._side = streams.side()
        self._side.wait_stream(streams.current())
        self._read_from: deque[tuple[Any, Any]] = deque()

    def copy(self, host: Any) -> tuple[Any, Any, Any]:
        streams, side = self._streams, self._side
        sources = list(tensors_of(host))  # a type whose `to` works in place would drop them too early
        resident = [tensor for tensor in sources if streams.is_resident(tensor)]
        if resident:
            side.wait_stream(streams.current())
        try:
            with streams.on(side):
                batch = to_device(host, streams.device, non_blocking=self._non_blocking)
                if self._transform is not None:
                    batch = self._transform(batch)
                event = side.record_event()
        except BaseException:
            side.synchronize()  # what was begun reads memory that nobody will hold
            raise
        for tensor in resident:
            streams.record(tensor, side)
        return batch, event, (host, sources)

    def hand_over(self, done: _Copy) -> Any:
        current = self._streams.current()
        current.wait_event(done.event)
        for tensor in tensors_of(done.batch):
            if self._streams.is_resident(tensor):
                self._streams.record(tensor, current)
        self._read_from.append((done.event, done.host))
        done.host = None
        with self._streams.on(self._side):
            while self._read_from and self._read_from[0][0].query():
                self._read_from.popleft()
        return done.batch

    def finish(self, dropped: deque[_Copy]) -> None:
        with self._streams.on(self._side):
            while self._read_from:
                self._read_from[0][0].synchronize()
                self._read_from.popleft()
            while dropped:
                if dropped[0].event is not None:
                    dropped[0].event.synchronize()
                dropped.popleft()


class _Streams:
    """All that is asked of a device's streams, so that a test can answer in its place."""

    def __init__(self, device: torch.device) -> None:
        self._module: Any = torch.get_device_module(device.type)
        index: int | None = device.index
        self.device = torch.device(device.type, self._module.current_device() if index is None else index)

    def side(self) -> Any:
        return self._module.Stream(device=self.device)

    def current(self) -> Any:
        return self._module.current_stream(self.device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        return self._module.stream(stream)  # type: ignore[no-any-return]  # torch.cuda, torch.xpu: modules found by name

    def record(self, tensor: torch.Tensor, stream: Any) -> None:
        tensor.record_stream(stream)

    def is_resident(self, tensor: torch.Tensor) -> bool:
        return tensor.device == self.device


def _streams(device: torch.device) -> _Streams | None:
    """The device's streams; None where torch has none, or none that are worth while."""
    if device.type in {"cpu", "meta", "mps"}:
        return None
    module = torch.get_device_module(device.type)
    names = ("Stream", "stream", "current_stream", "current_device")
    return _Streams(device) if all(hasattr(module, name) for name in names) else None
