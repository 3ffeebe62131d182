"""No batch is torn, whenever the device copies: prefetching on a fake device that runs late."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from penstock.torch.device.copying import SideStreamCopier  # noqa: E402  # as above
from penstock.torch.device.prefetching import Prefetcher  # noqa: E402  # as above
from penstock.workers.slots import SlotPool  # noqa: E402  # it needs torch
from tests.torch.device.delayed_device import (  # noqa: E402  # as above
    WIDTH,
    DelayedDevice,
    HostMemory,
    HostTensor,
)

Batches = Callable[[DelayedDevice, HostMemory, int], Iterator[Any]]


def host_batches(device: DelayedDevice, host: HostMemory, count: int) -> Iterator[Any]:  # as the others
    """Nested batches in host memory."""
    for number in range(count):
        yield {"x": host.make(number), "y": [host.make(number), "text"]}


def resident_batches(device: DelayedDevice, host: HostMemory, count: int) -> Iterator[Any]:  # as above
    """Batches that a loader makes on the device, by kernels on the current stream."""
    for number in range(count):
        yield {"x": device.make(number), "y": [device.make(number), "text"]}


def count_torn(
    device: DelayedDevice, count: int, *, batches: Batches = host_batches, depth: int = 2, transforms: bool = False
) -> int:
    """How many of the tensors that steps read were not whole; each step is queued on the current stream."""
    host, seen = HostMemory(device), []  # type: ignore[var-annotated]  # rows
    parameter = device.make(5)

    def transform(batch: Any) -> Any:
        return {"x": device.add(batch["x"], parameter), "y": [device.add(batch["y"][0], 5), "text"]}

    options: Any = {"transform": transform if transforms else None, "streams": device}
    for batch in Prefetcher(batches(device, host, count), device.device, depth=depth, **options):
        device.read(batch["x"], seen)
        device.read(batch["y"][0], seen)
        del batch
    device.finish()
    assert (len(seen), device.late_reads) == (2 * count, 0)
    return sum(row != [index // 2 + 5 * transforms] * WIDTH for index, row in enumerate(seen))


@pytest.mark.parametrize(
    ("count", "depth", "slow"), [(2_000, 2, "main"), (1_000, 1, "main"), (1_000, 2, "side"), (1_000, 5, "")]
)
def test_many_batches_arrive_whole(count: int, depth: int, slow: str) -> None:
    """With slow steps or slow copies, while host and device memory are used again all the time."""
    device = DelayedDevice(seed=depth, slow=slow)

    assert count_torn(device, count, depth=depth) == 0
    assert len(device.rows) < 700  # memory does not grow with batches


@pytest.mark.parametrize("batches", [host_batches, resident_batches])
@pytest.mark.parametrize("slow", ["main", "side"])
def test_transformed_batches_arrive_whole(batches: Batches, slow: str) -> None:
    """Also those that a loader makes on the device; the transform's parameter was queued before the iteration."""
    assert count_torn(DelayedDevice(slow=slow), 1_000, batches=batches, transforms=True) == 0


def test_a_transform_may_use_what_is_queued_before_the_iteration() -> None:
    """The side stream waits for it, behind a long queue of the training program."""
    device = DelayedDevice(seed=2, slow="main")
    host, seen = HostMemory(device), []  # type: ignore[var-annotated]  # rows
    device.main.queue.extend([lambda: None] * 200)
    parameter = device.make(5)

    batches = [host.make(number) for number in range(9)]
    for batch in Prefetcher(batches, device.device, lambda x: device.add(x, parameter), streams=device):
        device.read(batch, seen)
    device.finish()

    assert seen == [[number + 5] * WIDTH for number in range(9)]


@pytest.mark.parametrize(
    ("call", "slow", "batches"),
    [
        ("wait_event", "side", host_batches),
        ("record", "main", host_batches),
        ("wait_stream", "main", resident_batches),
    ],
)
def test_the_fake_device_shows_a_call_that_is_missing(call: str, slow: str, batches: Batches) -> None:
    """Without the call, batches are torn: the tests above can fail."""
    device = DelayedDevice(slow=slow)
    device.ignored.add(call)

    assert count_torn(device, 300, batches=batches, transforms=batches is resident_batches) > 0


def test_the_fake_device_shows_host_memory_that_is_released_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, if host memory is not kept until its copy has ended."""
    copy = SideStreamCopier.copy
    monkeypatch.setattr(SideStreamCopier, "copy", lambda self, host: (*copy(self, host)[:2], None))
    device = DelayedDevice(slow="side")

    with pytest.raises(AssertionError):
        count_torn(device, 300)
    assert device.late_reads > 0


def test_steps_on_several_streams_get_whole_batches() -> None:
    """Each batch is ready on the stream that is current when it is returned, and its memory is kept for that stream."""
    device = DelayedDevice(seed=4, slow="main")
    host, seen = HostMemory(device), []
    steps = [device.main, device.side(), device.side()]
    walk = iter(Prefetcher(host_batches(device, host, 900), device.device, streams=device))
    for number in range(900):
        rows: list[list[int]] = []
        with device.on(steps[number % 3]):
            device.read(next(walk)["x"], rows)
        seen.append(rows)
    device.finish()

    assert seen == [[[number] * WIDTH] for number in range(900)]


@pytest.mark.parametrize("slow", ["main", "side", ""])
def test_breaks_and_errors_leave_no_copy_behind(slow: str) -> None:
    """Iterations end at any batch by close(), by deletion, or with an error of loader or transform."""
    device, chance = DelayedDevice(seed=7, slow=slow), random.Random(8)
    host, expected, seen, in_use = HostMemory(device), [], [], []  # type: ignore[var-annotated]  # numbers

    def batches() -> Iterator[Any]:
        for number in range(12):
            if chance.random() < 0.03:
                raise OSError("loader")
            yield [host.make(number)]

    def transform(batch: Any) -> Any:
        added = device.add(batch[0], 1)
        if chance.random() < 0.03:
            raise ValueError("transform")
        return [added]

    for _ in range(300):
        walk: Any = iter(Prefetcher(batches(), device.device, transform, depth=3, streams=device))
        number = 0
        for _ in range(chance.randrange(14)):
            try:
                (tensor,) = next(walk)
            except (OSError, ValueError):
                number += 1
                continue
            except StopIteration:
                break
            device.read(tensor, seen)
            number += 1
            expected.append([number] * WIDTH)
            del tensor
        if chance.random() < 0.5:
            walk.close()
        del walk
        in_use.append(host.in_use)
    device.finish()

    assert seen == expected
    assert set(in_use) == {0}
    assert device.late_reads == 0


@pytest.mark.parametrize("slow", ["main", "side"])
def test_slots_are_whole_in_endless_epochs(slow: str) -> None:
    """Real slots, whose fences are events of the fake device, over many short epochs."""
    device = DelayedDevice(seed=3, slow=slow)

    class Lock:
        def __call__(self, address: int, nbytes: int) -> Callable[[], None]:  # as PageLock
            return lambda: None

        def fence(self) -> Callable[[], bool]:
            return device.current().record_event().query

    pool = SlotPool(page_lock=Lock())
    sent: list[int] = []

    class Loader:
        def __iter__(self) -> Iterator[Any]:
            for _ in range(7):
                array = pool.take(4 * WIDTH).bytes().view(np.int32)
                array[:] = len(sent)
                sent.append(len(sent))
                tensor = torch.from_numpy(array).as_subclass(HostTensor)
                tensor.owner = device
                del array
                yield [tensor]
                del tensor

    seen: list[list[int]] = []
    walk: Any = iter(Prefetcher(Loader(), device.device, streams=device, endless=True))
    for _ in range(2_000):
        device.read(next(walk)[0], seen)
    walk.close()
    device.finish()

    assert seen == [[number] * WIDTH for number in range(2_000)]
    assert pool.allocated < 500
