"""Stage "training": how long steps of ResNet-50 wait for data, and how much of the copies is hidden behind them.

Steps are forward, backward and SGD in bfloat16 (autocast), channels last, on 4 processor cores. In turns:

- ``resident``: one batch that is on the device, of float32, and as a loader makes it (bfloat16, channels last). Others
  are compared with the one of their kind: ``waits`` is 1 - resident / time of a step. This also counts by how much
  kernels that run beside the step's own make it longer.
- loaders: ``decode="cuda"``, and the processor with ``pin_memory`` and ``prefetch``.
- ready batches in host memory, which cost nothing to make: ``.to()`` from ordinary and from page-locked memory, uint8
  normalised on the device, the ``DataPrefetcher`` of old scripts, ``prefetch``.

``hidden`` is the share of the copies' own time that steps do not take longer for. It is measured with steps of matrix
products that take as long as a few copies: a step of ResNet-50 takes as long as some 30, and two of them differ by more
than a part of a copy.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from benches.device.program import Skipped, Stage, figure, run_stage, use_cores

CORES: Final = 4

COPIES_OF_A_STEP: Final = 3
"""How many times as long as a copy a step takes with which copies are timed."""

RESIDENT: Final = {"float32": "float32, resident", "bfloat16": "bfloat16, resident"}

Feed = Callable[[], Iterable[Any]]
"""Begins an endless iteration of batches on the device."""


def run(stage: Stage) -> None:
    """Measure the step, then all feeds in turns."""
    if not use_cores(CORES) and not stage.rehearse:
        raise Skipped(f"this machine has fewer than {CORES} processor cores")
    import torch

    from benches.device.device import open_device

    torch.backends.cudnn.benchmark = True  # as scripts that train set it
    device = open_device(rehearse=stage.rehearse)
    batch, side = stage.choose(256, 2), stage.choose(224, 32)
    if stage.rehearse:
        layers = torch.nn.Conv2d(3, 8, 7, stride=16), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
        model: torch.nn.Module = torch.nn.Sequential(*layers, torch.nn.Linear(8, 1000))
    else:
        model = _make_resnet()
    copied = _HostBatches(device, batch, side)
    feeds: dict[str, Feed] = {**copied.resident(), **_loaders(stage, batch), **copied.feeds()}
    _measure(stage, device, _Step(model, device.device), feeds, copied)


def _make_resnet() -> Any:
    try:
        from torchvision.models import resnet50
    except ImportError as error:
        raise Skipped(f"torchvision cannot be imported, whose ResNet-50 is the step: {error}") from error
    return resnet50()


class _Step:
    """A training step; it does not wait for the device."""

    def __init__(self, model: Any, device: Any) -> None:
        import torch

        self._model = model.to(device, memory_format=torch.channels_last).train()
        self._optimizer = torch.optim.SGD(self._model.parameters(), 0.01, momentum=0.9)
        self._device = device

    def __call__(self, batch: Any) -> None:
        """Queue the step."""
        import torch

        images, labels = batch
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self._device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self._model(images), labels % 1000)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's is untyped
        self._optimizer.step()


def _loaders(stage: Stage, batch: int) -> dict[str, Feed]:
    """Loaders over the photographs, many times over, so that an epoch does not end."""
    from benches.device.tasks import open_dataset, pipelines
    from penstock.torch import DataLoader, prefetch

    pack, target = stage.work / "photographs.lmdb", "cpu" if stage.rehearse else "cuda"

    def make(**options: Any) -> Any:
        pipeline = pipelines("bfloat16")["T1"]
        data = open_dataset(pack, pipeline, stage.choose(1000, 40), limit=stage.choose(400, 8))
        return DataLoader(
            data, batch, shuffle=True, drop_last=True, seed=0, num_workers=CORES, workers="threads", **options
        )

    device = make(decode="cuda", channels_last=True)
    host = make(decode="cpu", pin_memory=not stage.rehearse)
    return {
        "penstock, decode on the device": lambda: device,
        "penstock, processor + pin_memory + prefetch": lambda: prefetch(host, target),
    }


class _HostBatches:
    """Ready batches in host memory, float32 and uint8, ordinary and page-locked."""

    def __init__(self, device: Any, batch: int, side: int) -> None:
        import torch

        from penstock import transforms as T
        from penstock.torch import normalize_on_device

        self._device = device
        self._normalize = normalize_on_device(T.IMAGENET_MEAN, T.IMAGENET_STD, dtype=torch.bfloat16)
        shape = (batch, 3, side, side)
        self._labels = torch.from_numpy(device.allocate((batch,), "int64")).random_(0, 1000)
        self.locked: dict[str, list[Any]] = {}
        for name in ("float32", "uint8"):
            arrays = [torch.from_numpy(device.allocate(shape, name)) for _ in range(4)]
            self.locked[name] = [array.random_(0, 256) if name == "uint8" else array.normal_() for array in arrays]
        self.ordinary = [array.clone() for array in self.locked["float32"]]

    def resident(self) -> dict[str, Feed]:
        """One batch on the device, of each kind."""
        import torch

        images, labels = self.locked["float32"][0].to(self._device.device), self._labels.to(self._device.device)
        small = images.to(torch.bfloat16, memory_format=torch.channels_last)
        return {
            RESIDENT["float32"]: lambda: itertools.repeat((images, labels)),
            RESIDENT["bfloat16"]: lambda: itertools.repeat((small, labels)),
        }

    def feeds(self) -> dict[str, Feed]:
        """The ways to copy."""
        from penstock.torch import prefetch

        device = self._device.device
        small, large = (self._batches(self.locked[name]) for name in ("uint8", "float32"))

        def copy(batches: Callable[[], Iterator[Any]], transform: Any = None) -> Feed:
            def feed() -> Iterator[Any]:
                for images, labels in batches():
                    batch = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
                    yield transform(batch) if transform else batch

            return feed

        return {
            "float32, .to() from ordinary memory": copy(self._batches(self.ordinary)),
            "float32, .to() from page-locked memory": copy(large),
            "uint8, .to() from page-locked memory, normalised on the device": copy(small, self._normalize),
            "float32, DataPrefetcher": lambda: _iterate(_DataPrefetcher(large(), device)),
            "float32, prefetch": lambda: prefetch(_Loader(large), device),
            "uint8, prefetch, normalised on the device": lambda: prefetch(
                _Loader(small), device, transform=self._normalize
            ),
        }

    def _batches(self, images: list[Any]) -> Callable[[], Iterator[Any]]:
        return lambda: ((each, self._labels) for each in itertools.cycle(images))

    def copy_s(self, name: str) -> float:
        """Seconds that the copy of a page-locked batch takes alone."""
        taken: list[float] = []
        for images in self.locked[name] * 4:
            before = self._device.mark()
            images.to(self._device.device, non_blocking=True)
            after = self._device.mark()
            self._device.synchronize()
            taken.append(before.elapsed_ms(after) / 1e3)
        return statistics.median(taken)


class _Loader:
    """An iterable, as ``prefetch`` takes it."""

    def __init__(self, batches: Callable[[], Iterator[Any]]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self._batches()


class _DataPrefetcher:
    """As in many scripts, after the examples of NVIDIA's apex: one batch ahead, on a side stream."""

    def __init__(self, loader: Iterator[Any], device: Any) -> None:
        import torch

        self._loader, self._device, self._cuda = loader, device, torch.cuda
        self._stream = torch.cuda.Stream() if device.type == "cuda" else None  # type: ignore[no-untyped-call]  # torch's is untyped
        self._preload()

    def _preload(self) -> None:
        images, labels = next(self._loader)
        with self._cuda.stream(self._stream) if self._stream else contextlib.nullcontext():
            self._next = images.to(self._device, non_blocking=True), labels.to(self._device, non_blocking=True)

    def next(self) -> Any:
        """The batch that was copied ahead."""
        if self._stream:
            self._cuda.current_stream().wait_stream(self._stream)
        batch = self._next
        if self._stream:
            for tensor in batch:
                tensor.record_stream(self._cuda.current_stream())
        self._preload()
        return batch


def _iterate(prefetcher: _DataPrefetcher) -> Iterator[Any]:
    while True:
        yield prefetcher.next()


class _Products:
    """A step of matrix products, of about so many seconds."""

    def __init__(self, device: Any, seconds: float, side: int) -> None:
        import torch

        self._factor = torch.rand(side, side, device=device.device).to(torch.bfloat16)
        self._product = torch.empty_like(self._factor)
        self._count = 20
        taken = []
        for _ in range(2):  # the first time chooses an algorithm
            before = device.mark()
            self(None)
            after = device.mark()
            device.synchronize()
            taken.append(before.elapsed_ms(after) / 1e3)
        self._count = max(1, round(seconds * self._count / taken[-1]))

    def __call__(self, _batch: Any) -> None:
        """Queue the step; it runs behind the batch, which is ready on the current stream."""
        import torch

        for _ in range(self._count):
            torch.mm(self._factor, self._factor, out=self._product)


def _measure_hidden(stage: Stage, device: Any, feeds: dict[str, Feed], copy_s: dict[str, float]) -> dict[str, Any]:
    """The share of the copies' time that steps do not take longer for, of each way to copy."""
    step = _Products(device, COPIES_OF_A_STEP * copy_s["float32"], stage.choose(4096, 64))
    kinds = {name: name.partition(",")[0] for name in feeds if name not in RESIDENT.values()}
    kinds = {name: kind for name, kind in kinds.items() if kind in copy_s}
    times: dict[str, list[float]] = {name: [] for name in (RESIDENT["float32"], *kinds)}
    for _ in range(stage.choose(5, 2)):
        for name, turns in times.items():
            walk = iter(feeds[name]())
            _take(device, step, walk, 2)
            turns.append(_take(device, step, walk, stage.choose(30, 1))[0])
            del walk
    alone = times[RESIDENT["float32"]][1:]  # without the first round, which allocates
    return {
        name: figure(
            [1 - (each - own) / copy_s[kind] for own, each in zip(alone, times[name][1:], strict=True)], "of the copy"
        )
        for name, kind in kinds.items()
    }


def _measure(stage: Stage, device: Any, step: _Step, feeds: dict[str, Feed], copied: _HostBatches) -> None:
    lead = {name: stage.choose(2 * 2 * CORES, 1) if name.startswith("penstock") else 1 for name in feeds}

    def take(name: str, count: int) -> tuple[float, float]:
        """A turn, after so many steps that the batches that a loader made ahead of them are used up."""
        walk = iter(feeds[name]())
        try:
            _take(device, step, walk, lead[name])
            return _take(device, step, walk, count)
        finally:
            del walk  # ends the workers, which would disturb the next turn

    copy_s = {name: copied.copy_s(name) for name in copied.locked}
    hidden = _measure_hidden(stage, device, feeds, copy_s)
    for name in feeds:  # the first steps choose convolutions
        take(name, stage.choose(2, 1))
    alone_s = take(RESIDENT["float32"], stage.choose(8, 1))[0]
    rounds = stage.choose(6, 1)
    turn_s = (stage.left_s * 0.9 / rounds - alone_s * sum(lead.values())) / len(feeds)
    steps = stage.choose(max(10, min(200, int(turn_s / alone_s))), 1)
    stage.found |= {"batch_size": len(copied.ordinary[0]), "steps_of_a_turn": steps, "cores": CORES}
    stage.found["copy_ms"] = {name: round(seconds * 1e3, 3) for name, seconds in copy_s.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in feeds}
    for _ in range(rounds):
        for name, turns in times.items():
            turns.append(take(name, steps))
        stage.found |= _evaluate(times, hidden, len(copied.ordinary[0]))
        stage.save()
    print(stage.found)


def _evaluate(times: dict[str, list[tuple[float, float]]], hidden: dict[str, Any], batch: int) -> dict[str, Any]:
    """The figures of each feed."""
    figures = {}
    for name, turns in times.items():
        kind = name.partition(",")[0]
        own = [each for each, _ in times[RESIDENT.get(kind, RESIDENT["bfloat16"])]]
        found: dict[str, Any] = {"rate": figure([batch / each for each, _ in turns], "images/s")}
        found["waits"] = figure([1 - alone / each for alone, (each, _) in zip(own, turns, strict=True)], "of the time")
        found["next_takes"] = figure([waited / each for each, waited in turns], "of the time")
        if name in hidden:
            found["hidden"] = hidden[name]
        figures[name] = found
    return figures


def _take(device: Any, step: Callable[[Any], None], walk: Iterator[Any], count: int) -> tuple[float, float]:
    """Seconds of a step, and of those the seconds in ``next()``."""
    device.synchronize()
    started, waited = time.perf_counter(), 0.0
    for _ in range(count):
        before = time.perf_counter()
        batch = next(walk)
        waited += time.perf_counter() - before
        step(batch)
        del batch
    device.synchronize()
    return (time.perf_counter() - started) / count, waited / count


if __name__ == "__main__":
    run_stage(run)
