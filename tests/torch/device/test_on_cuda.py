"""Prefetching on CUDA devices: ``pytest -m cuda``. Without a device these tests are skipped."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import TensorDataset  # noqa: E402  # it needs torch

import penstock.torch as pt  # noqa: E402  # as above
from penstock import transforms as T  # noqa: E402  # as above
from penstock.torch.device.normalizing import normalize_on_device  # noqa: E402  # as above
from penstock.torch.device.pinning import create_slot_lock  # noqa: E402  # as above
from penstock.torch.device.prefetching import prefetch  # noqa: E402  # as above
from penstock.workers.slots import SlotPool  # noqa: E402  # as above
from tests.torch.device.devices import needs_cuda  # noqa: E402  # as above

SIZE = 4096


class SlotBatches:
    """A loader whose batches lie in page-locked slots: ``count`` in each epoch, numbered on from epoch to epoch."""

    def __init__(self, count: int, fails_at: int | None = None) -> None:
        self.count, self.fails_at, self.made = count, fails_at, 0
        self.pool = SlotPool(page_lock=create_slot_lock())

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.count):
            number, self.made = self.made, self.made + 1
            if number == self.fails_at:
                raise OSError(f"batch {number}")
            array = self.pool.take(4 * SIZE).bytes().view(np.int32)
            array[:] = number
            batch = {"x": torch.from_numpy(array), "y": [torch.full((3,), number).pin_memory(), "text"]}
            del array
            yield batch
            del batch


class SlowStep:
    """A training step that compares its batch on the device, behind slow kernels; it does not wait for the device."""

    def __init__(self, device: str = "cuda") -> None:
        self._slow = torch.randn(1024, 1024, device=device)
        self._torn = torch.zeros((), dtype=torch.int64, device=device)

    def __call__(self, batch: Any, number: int) -> None:
        """Queue the step."""
        self._slow = (self._slow @ self._slow).clamp(-1, 1)
        self._torn += (batch["x"] != number).sum() + (batch["y"][0] != number).sum()

    def count_torn(self) -> int:
        """The numbers that were not the batch's. Waits for the device."""
        return int(self._torn.item())


def read_rss_nbytes() -> int:
    """Memory of this process that is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@needs_cuda
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_ten_thousand_batches_arrive_whole(depth: int) -> None:
    """Over endless epochs, under slow steps on a stream of their own; each batch is deleted when its step is queued."""
    batches = prefetch(SlotBatches(997), "cuda", depth=depth, endless=True)
    with torch.cuda.stream(torch.cuda.Stream()):
        step = SlowStep()
        for number, batch in zip(range(10_000), batches, strict=False):
            step(batch, number)
            del batch

        assert step.count_torn() == 0


@needs_cuda
def test_memory_is_flat() -> None:
    """After the warm-up, neither the device's memory nor the process' grows with the number of batches."""
    loader = SlotBatches(100)
    walk: Any = iter(prefetch(loader, "cuda", endless=True))
    step = SlowStep()
    seen = []
    number = 0
    for _ in range(5):
        for _ in range(1000):
            step(next(walk), number)
            number += 1
        torch.cuda.synchronize()
        seen.append((torch.cuda.memory_reserved(), read_rss_nbytes(), loader.pool.allocated))
    walk.close()

    assert step.count_torn() == 0
    assert max(reserved for reserved, _, _ in seen[1:]) - seen[1][0] <= 4 << 20
    assert max(rss for _, rss, _ in seen[1:]) - seen[1][1] <= 32 << 20
    assert max(slots for _, _, slots in seen) < 200


@needs_cuda
def test_epochs_reserve_memory_once() -> None:
    """A prefetcher for each epoch: torch keeps no memory for the streams of those before."""
    torch.cuda.empty_cache()
    reserved = []
    for _ in range(6):
        step = SlowStep()
        for number, batch in enumerate(prefetch(SlotBatches(20), "cuda")):
            step(batch, number)
            del batch
        assert step.count_torn() == 0
        del step
        reserved.append(torch.cuda.memory_reserved())

    assert set(reserved[1:]) == {reserved[1]}


@needs_cuda
def test_breaks_and_errors_leave_a_clean_device() -> None:
    """A break, and errors of loader and transform, leave no memory allocated, and the next iteration is whole."""

    def failing(batch: Any) -> Any:
        if (batch["x"][0] == 7).item():
            raise ValueError("transform")
        return batch

    def run(loader: SlotBatches, **options: Any) -> int:
        step = SlowStep()
        walk: Any = iter(prefetch(loader, "cuda", depth=4, **options))
        for number in range(10):
            try:
                batch = next(walk)
            except (OSError, ValueError):
                break
            step(batch, number)
            del batch
        del walk
        return step.count_torn()

    torns, allocated = [], []
    for _ in range(20):
        torns += [run(SlotBatches(50)), run(SlotBatches(50, fails_at=9)), run(SlotBatches(50), transform=failing)]
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # also frees what waits for other streams
        allocated.append(torch.cuda.memory_allocated())

    assert torns == [0] * 60
    assert set(allocated[1:]) == {allocated[1]}


@needs_cuda
def test_every_device_gets_its_own_batches() -> None:
    """Prefetchers of several devices, in turns; with one device, two prefetchers of it."""
    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    names = names if len(names) > 1 else names * 2
    steps = [SlowStep(name) for name in names]
    walks = [iter(prefetch(SlotBatches(500), name)) for name in names]
    for number in range(500):
        for walk, step, name in zip(walks, steps, names, strict=True):
            batch = next(walk)
            assert str(batch["x"].device) == name
            with torch.cuda.device(name):
                step(batch, number)
            del batch

    assert [step.count_torn() for step in steps] == [0] * len(names)


@needs_cuda
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_steps_use_whole_batches(mode: str) -> None:
    """``torch.compile``; its mode "reduce-overhead" replays CUDA graphs, which read batches that were copied for it."""
    if not any(map(shutil.which, ("gcc", "clang", os.environ.get("CC", "cc")))):
        pytest.skip("Triton needs a compiler for C, and there is none on this machine")
    weight = torch.ones(SIZE, device="cuda")

    @torch.compile(mode=mode)  # type: ignore[untyped-decorator]  # torch's is untyped
    def compute(x: Any) -> Any:
        return (x.float() * weight).amin(), (x.float() * weight).amax()

    found = []
    for batch in prefetch(SlotBatches(200), "cuda"):
        low, high = compute(batch["x"])
        found.append((low.clone(), high.clone()))  # a replay writes to the same memory
        del batch

    assert [(int(low), int(high)) for low, high in found] == [(n, n) for n in range(200)]


@needs_cuda
def test_a_captured_step_uses_whole_batches() -> None:
    """Batches are copied to the input of a captured graph, while the next ones arrive."""
    static = torch.zeros(SIZE, dtype=torch.int32, device="cuda")
    extremes = torch.zeros(2, dtype=torch.int32, device="cuda")
    walk: Any = iter(prefetch(SlotBatches(500), "cuda"))
    static.copy_(next(walk)["x"])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # batches are ahead during the capture
        for _ in range(20):
            extremes.copy_(torch.stack([static.amin(), static.amax()]))
    found = []
    for batch in walk:
        static.copy_(batch["x"])
        graph.replay()
        found.append(extremes.clone())
        del batch

    assert [row.tolist() for row in found] == [[n, n] for n in range(1, 500)]


@needs_cuda
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_normalised_bits_are_those_of_the_cpu(layout: str, dtype: str) -> None:
    """All values in all channels, after the copy, as Normalize and ToLayout have them on the CPU."""
    image = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    normalised = T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD).image(image, np.empty(0))
    expected = T.ToLayout(layout, dtype).image(normalised, np.empty(0))
    batch = torch.from_numpy(T.ToLayout(layout, "uint8").image(image, np.empty(0)))[None].pin_memory()
    normalize = normalize_on_device(T.IMAGENET_MEAN, T.IMAGENET_STD, dtype=getattr(torch, dtype), layout=layout)

    (got,) = prefetch([[batch]], "cuda", transform=normalize)

    assert np.array_equal(got[0][0].cpu().numpy(), expected)


@needs_cuda
@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_loaders_batches_are_pinned_and_whole(workers: str) -> None:
    """penstock's loader with page-locked slots, over three epochs; its state resumes exactly."""
    numbers = torch.arange(2000)

    def loader() -> Any:
        kind: Any = {"num_workers": 2, "workers": workers, "persistent_workers": True}
        return pt.DataLoader(TensorDataset(numbers), 16, shuffle=True, seed=1, pin_memory=True, **kind)

    host = loader()
    assert all(batch[0].is_pinned() for batch in host)
    host.close()
    expected = [batch[0] for one in [loader()] for _ in range(3) for batch in one]
    batches = prefetch(loader(), "cuda", endless=True)
    walk: Any = iter(batches)
    got, states = [], []
    for _ in range(len(expected)):
        got.append(next(walk)[0])
        states.append(batches.state_dict())
    walk.close()
    resumed = prefetch(loader(), "cuda", endless=True)
    resumed.load_state_dict(states[124])  # of an epoch's last batch
    again: Any = iter(resumed)
    rest = [next(again)[0] for _ in range(10)]
    again.close()

    assert [batch.tolist() for batch in got] == [batch.tolist() for batch in expected]
    assert [batch.tolist() for batch in rest] == [batch.tolist() for batch in expected[125:135]]
