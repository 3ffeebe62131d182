"""What a worker does with a batch of packets: copy it to the device, run the kernels, and wait.

Damaged images are known when the kernels have run. They are then decoded by the CPU, one by one, under the loader's
rules: that raises the same error as a loader without a device, or repairs, leaves out or replaces the sample. Their
pixels take the places of the damaged rows; the other rows stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from penstock.bfloat16 import is_bfloat16
from penstock.errors import ArgumentError
from penstock.ragged import Allocate
from penstock.sample import Batch, SampleKeys, Tree, tree_leaves
from penstock.torch.cuda.augmenting import AugmentPlan, plan_erasing, plan_pixels
from penstock.torch.cuda.decoder import DTYPES, PacketDecoder, RowFormat
from penstock.torch.cuda.runtime import CudaRuntime, translate_errors
from penstock.torch.device.batches import to_device
from penstock.torch.device.copying import Stream
from penstock.trace import stage
from penstock.transforms.base import Op, Params
from penstock.transforms.program.packet_program import PacketRows, PacketSpec
from penstock.workers.base import NOTHING, Task
from penstock.workers.jobs.fill import FillBuild, FillJob

__all__ = ["DeviceJob", "DeviceRows"]


class DeviceRows:
    """How packets of a dataset become tensors of a device.

    Parameters
    ----------
    runtime : CudaRuntime
        The device.
    spec : tree of ArraySpec and RaggedSpec
        Of a sample, with a PacketSpec.
    channels_last : bool
        Whether images have torch's channels-last memory format.
    deliver : callable
        From arrays in the sample's structure to tensors.
    """

    def __init__(
        self,
        runtime: CudaRuntime,
        spec: Tree,
        deliver: Callable[[Tree], Batch],
        *,
        channels_last: bool = False,
    ) -> None:
        self.runtime, self.deliver, self._channels_last = runtime, deliver, channels_last
        self._spec: PacketSpec = next(leaf for leaf in tree_leaves(spec) if isinstance(leaf, PacketSpec))
        self._decoder = PacketDecoder(
            runtime.kernels,
            runtime.device,
            _row_format(self._spec),
            reserve=runtime.share_memory().reserve,
            launching=runtime.launching,
        )

    def decode(
        self, packets: PacketRows, kept: NDArray[np.int64], allocate: Allocate, keys: SampleKeys
    ) -> tuple[torch.Tensor, NDArray[np.int32]]:
        """The images of the rows ``kept``, of samples with these keys, and their status, once the device is done.

        ``allocate`` gives the memory from which the device copies.
        """
        decoder = self._decoder
        joined = packets.batch_with_room(kept, allocate, decoder.room(len(kept)))
        augmentation = _DrawnAugmentation(self._spec, keys) if self._spec.augmenting or self._spec.erasing else None
        with translate_errors(self.runtime.device):
            rows, status = decoder.decode(
                joined.values, joined.offsets, augmentation, channels_last=self._channels_last
            )
            return rows, status.cpu().numpy()  # waits

    def merge(
        self,
        images: torch.Tensor,
        others: torch.Tensor | None,
        places: NDArray[np.int64],
        kept: NDArray[np.int64],
    ) -> torch.Tensor:
        """Return the rows ``kept`` of ``images``, after ``others`` have taken the rows ``places``.

        On the decode stream, to which the memory of all of them belongs.
        """
        with translate_errors(self.runtime.device), self.runtime.launching():
            if others is not None:
                images[places.tolist()] = others
            if not 0 < len(kept) < len(images):
                return images
            chosen = torch.empty_like(images[: len(kept)])  # in the same memory format
            return chosen.copy_(images[kept.tolist()])


class _DrawnAugmentation:
    """What the ops of a pipeline draw for the samples of a batch, as launches of kernels."""

    def __init__(self, spec: PacketSpec, keys: SampleKeys) -> None:
        self._spec, self._keys = spec, keys
        height, width = spec.size
        self._size = width, height

    def plan_pixels(self, first: int, count: int) -> AugmentPlan | None:
        """Plan the ops on uint8 pixels, with the numbers that were drawn for the images; None: there is none."""
        if not self._spec.augmenting:
            return None
        drawn = [self._draw(op, stream, first, count) for stream, op in self._spec.augmenting]
        return plan_pixels([op for _, op in self._spec.augmenting], drawn, self._size)

    def plan_values(self, first: int, count: int) -> AugmentPlan | None:
        """Plan the erasing of values after normalisation; None: there is none."""
        if self._spec.erasing is None:
            return None
        stream, op = self._spec.erasing
        return plan_erasing(op, self._draw(op, stream, first, count), self._size)

    def _draw(self, op: Op, stream: int, first: int, count: int) -> Params:
        sizes = np.tile(np.array([self._size], np.int32), (count, 1))
        return op.draw(self._keys[first : first + count], sizes, stream)


def _row_format(spec: PacketSpec) -> RowFormat:
    dtypes = {str(known).removeprefix("torch."): known for known in DTYPES}
    dtype = torch.bfloat16 if is_bfloat16(spec.image.dtype) else dtypes.get(spec.image.dtype.name)
    if dtype is None:
        raise ArgumentError(
            f"images on a device must have one of the dtypes {', '.join(dtypes)}, got {spec.image.dtype}; choose one "
            "in ToLayout"
        )
    height, width = spec.size
    shape = spec.image.shape
    made = RowFormat(
        channels=shape[0] if spec.image_layout == "CHW" else shape[2],
        height=height,
        width=width,
        dtype=dtype,
        layout=spec.image_layout,
        is_reversed=spec.mode == "BGR",
        background=spec.background,
    )
    if spec.scale is not None and spec.offset is not None:
        made = replace(made, scale=spec.scale, offset=spec.offset)
    return made


class DeviceJob(FillJob):
    """Batches that a dataset fills with packets, and a device decodes.

    Parameters
    ----------
    rows : DeviceRows
        The device, and how its tensors are made.
    others
        As for :class:`~penstock.workers.jobs.FillJob`.
    """

    def __init__(self, rows: DeviceRows, *others: Any) -> None:
        super().__init__(*others)
        self.device_rows = rows

    def make_build(self, task: Task) -> FillBuild:
        """Begin a batch that the device decodes."""
        return _DeviceBuild(self, task)


class _DeviceBuild(FillBuild):
    __slots__ = ()
    _job: DeviceJob

    def finish(self) -> Batch:
        job = self._job
        job.trace.activate()
        try:
            with job.device_rows.runtime.working() as stream:
                return self._finish_on_device(job.device_rows, stream)
        finally:
            job.trace.deactivate()

    def _finish_on_device(self, device_rows: DeviceRows, stream: Stream) -> Batch:
        kept = self.kept_rows()
        if not len(kept):
            return NOTHING
        packets = next(leaf for leaf in tree_leaves(self._arrays) if isinstance(leaf, PacketRows))
        with stage("transport", len(kept)):
            images, status = device_rows.decode(packets, kept, self._allocate, self._keys(kept))
        if status.any():
            images, kept = self._replace_damaged(device_rows, packets, images, kept, kept[status != 0])
            if not len(kept):
                return NOTHING
        arrays = self.take_arrays(kept, lambda rows: images if rows is packets else None)
        delivered, device = device_rows.deliver(arrays), device_rows.runtime.device
        with stage("transport", 0), translate_errors(device):
            batch = to_device(delivered, device, non_blocking=True)
            stream.synchronize()  # copies read the slot, which is used again
        return batch

    def _replace_damaged(
        self,
        device_rows: DeviceRows,
        packets: PacketRows,
        images: torch.Tensor,
        decoded: NDArray[np.int64],
        damaged: NDArray[np.int64],
    ) -> tuple[torch.Tensor, NDArray[np.int64]]:
        """Have the CPU decode the rows ``damaged`` of ``decoded``: the images of the rows that are kept, and these."""
        packets.only_pixels = True
        with self._job.seeding():
            for row in damaged.tolist():
                self.build_rows(row, row + 1, singly=True)
        kept = self.kept_rows()
        again = np.intersect1d(damaged, kept)
        with stage("transport", 0):
            pixels = None
            if len(again):
                pixels, _ = device_rows.decode(packets, again, self._allocate, self._keys(again))
            return device_rows.merge(images, pixels, *(np.searchsorted(decoded, rows) for rows in (again, kept))), kept

    def _keys(self, kept: NDArray[np.int64]) -> SampleKeys:
        keys = self._task.keys
        return SampleKeys(keys.seed, keys.epoch, keys.indices[kept])
