"""What stages of ``benches/device`` compare and measure, with the kernels on the processor."""

from __future__ import annotations

import ctypes

import pytest

from benches.device.device import HostDevice
from benches.device.kernels import measure_batch
from benches.device.pixels import compare_damaged, compare_images
from penstock import transforms as T
from tests.torch.cuda.conftest import HostRuntime
from tests.torch.cuda.host_kernels import HostKernels
from tests.torch.cuda.pictures import jpegs

PICTURES = [image for image in jpegs().values() if len(image) > 3000]


class Forgetful:
    """Kernels of which one is not launched."""

    def __init__(self, kernels: HostKernels, forgotten: str) -> None:
        self._kernels, self._forgotten = kernels, forgotten

    def launch(self, name: str, argument: ctypes.Structure, columns: int, rows: int, threads: int) -> None:
        """Launch the others."""
        if name != self._forgotten:
            self._kernels.launch(name, argument, columns, rows, threads)


def test_damaged_batches_leave_whole_images_right(host_kernels: HostKernels) -> None:
    """Every other image of a batch is damaged, also by random bytes; the others, and the next batch, are right."""
    found = compare_damaged(HostDevice(host_kernels), PICTURES, rounds=2, batch=8)

    assert found.different == 0, found.examples
    assert found.damaged > 0
    assert found.images >= 24


@pytest.mark.parametrize("forgotten", ["color", ""])
def test_wrong_pixels_are_counted(host_kernels: HostKernels, forgotten: str) -> None:
    """The comparison finds nothing where all kernels run, and names images where one does not."""
    found = compare_images(HostDevice(Forgetful(host_kernels, forgotten)), PICTURES[:4])

    assert found.images == 8
    assert (found.different > 0) == bool(forgotten)
    assert bool(found.examples) == bool(forgotten)


def test_each_kernel_is_timed_by_its_name(host_kernels: HostKernels, host_runtime: HostRuntime) -> None:
    """Names are those of the launches, also of augmentation; a batch has one time for each."""
    pipeline = T.Pipeline([T.Decode(), T.Resize((40, 48)), T.ColorJitter(0.4), T.ToLayout("CHW", "uint8")])

    found, threads = measure_batch(HostDevice(host_kernels), pipeline, PICTURES[:3], repeats=2)

    names = set(host_runtime.kernels.launched)
    assert found["kernels_us"].keys() == threads.keys() == names >= {"entropy", "change"}
    assert all(each["n"] == 2 and each["median"] > 0 for each in found["kernels_us"].values())
    assert 0 < found["bytes_copied_per_image"] < 2 * found["encoded_bytes_per_image"] + 20_000
