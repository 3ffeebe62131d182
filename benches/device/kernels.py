"""Stage "kernels": the time of each kernel, its registers and occupancy, and what is copied for a batch.

Kernels are timed by events around each launch, behind work that keeps the device busy until all are queued: so that the
time is the kernel's, and not that of queueing it. Their names are those that a decoder launches.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch

from benches.device.device import Device, TimedRuntime, open_device
from benches.device.program import Stage, figure, run_stage
from benches.device.tasks import SIZE, has_table, pipelines, read_files
from penstock import _native
from penstock import transforms as T
from penstock.sample import SampleKeys
from penstock.torch.cuda.build import DeviceRows
from penstock.torch.cuda.compiler import compile_kernels
from penstock.transforms.program.image_chunk import ChunkSeekTables
from penstock.transforms.program.packet_program import PacketProgram

__all__ = ["count_occupancy", "measure_bandwidths", "measure_batch"]


def run(stage: Stage) -> None:
    """Measure the tasks, and one with augmentation; save after each."""
    device = open_device(rehearse=stage.rehearse)
    batch, repeats = stage.choose(256, 6), stage.choose(15, 2)
    images = read_files(stage.work / "photographs.lmdb", batch)
    images = [image for image in images if has_table(image)]
    images = list(itertools.islice(itertools.cycle(images), batch))
    stage.found["batch_size"] = batch
    stage.found["bandwidth"] = measure_bandwidths(device, nbytes=stage.choose(1 << 29, 1 << 20))
    augmented = [
        T.Decode(), T.RandomResizedCrop(SIZE), T.HorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.GaussianBlur(9), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float16"),
    ]  # fmt: skip
    every = pipelines() | {"T1 with ColorJitter and GaussianBlur": T.Pipeline(augmented)}
    threads: dict[str, int] = {}
    for task, pipeline in every.items():
        stage.found[task], launched = measure_batch(device, pipeline, images, repeats)
        threads |= launched
        stage.save()
    stage.found["occupancy"] = count_occupancy(threads) if not stage.rehearse else {}
    print(stage.found)


def measure_batch(
    device: Device, pipeline: T.Pipeline, images: list[bytes], repeats: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """The times of a batch's kernels, and the threads of their blocks."""
    program = pipeline.compile("image")
    packets = PacketProgram(program)
    spec, keys = packets.packet_spec(), SampleKeys(0, 0, np.arange(len(images)))
    rows = spec.make_rows(len(images))
    tables = ChunkSeekTables([_native.build_index(image, "tiles") for image in images])
    packets.fill(images, rows, keys, seek_tables=tables)  # type: ignore[arg-type]  # rows of packets
    kept = np.arange(len(images))
    copied = int(rows.batch_with_room(kept, np.empty, 0).offsets[-1])
    runtime = TimedRuntime(device)
    decode = DeviceRows(runtime, spec, lambda tree: tree, channels_last=True).decode  # type: ignore[arg-type]  # a fake
    times: dict[str, list[float]] = {}
    wholes = []
    for turn in range(repeats + 2):
        device.hold()
        start = device.mark()
        _, status = decode(rows, kept, device.allocate, keys)
        end = device.mark()
        taken = runtime.kernels.take_ms()
        if status.any():
            raise RuntimeError(f"{int((status != 0).sum())} whole images have a status")
        if turn < 2:  # memory is allocated
            continue
        wholes.append(start.elapsed_ms(end) * 1e3)
        for name, milliseconds in taken.items():
            times.setdefault(name, []).append(milliseconds * 1e3)
    sums = [sum(values) for values in zip(*times.values(), strict=True)]
    return {
        "kernels_us": {name: figure(values, "us") for name, values in times.items()},
        "all_kernels": figure(sums, "us"),
        "from_copy_to_status": figure(wholes, "us"),
        "images_per_second_of_kernels": figure([len(images) / (each * 1e-6) for each in sums], "images/s"),
        "bytes_copied_per_image": round(copied / len(images)),
        "encoded_bytes_per_image": round(sum(map(len, images)) / len(images)),
        "blocks": dict(runtime.kernels.blocks),
    }, runtime.kernels.threads


def count_occupancy(threads: dict[str, int]) -> dict[str, Any]:
    """Registers, local and shared memory of each kernel, and the share of a multiprocessor's threads that can run."""
    from cuda.bindings import driver  # type: ignore[import-untyped]  # NVIDIA's, without types

    def call(result: tuple[Any, ...]) -> Any:
        if int(result[0]) != 0:
            raise RuntimeError(f"CUDA: {result[0]!r}")
        return result[1] if len(result) > 1 else None

    attributes = {
        "registers": driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS,
        "local_nbytes": driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        "shared_nbytes": driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
    }
    most = torch.cuda.get_device_properties(0).max_threads_per_multi_processor
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(0))
    module = call(driver.cuModuleLoadData(compile_kernels(architecture)))
    found = {}
    for name, count in threads.items():
        function = call(driver.cuModuleGetFunction(module, name.encode()))
        blocks = call(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, count, 0))
        numbers = {key: int(call(driver.cuFuncGetAttribute(kind, function))) for key, kind in attributes.items()}
        found[name] = {"block": count, **numbers, "occupancy": round(blocks * count / most, 3)}
    call(driver.cuModuleUnload(module))
    return found


def measure_bandwidths(device: Device, nbytes: int, repeats: int = 9) -> dict[str, Any]:
    """Copies from page-locked memory to the device, and of the device's memory (bytes read and written)."""
    host = torch.from_numpy(device.allocate((nbytes,), np.uint8))
    host.random_()
    there, other = host.to(device.device, copy=True), torch.empty(nbytes, dtype=torch.uint8, device=device.device)
    found: dict[str, list[float]] = {"from page-locked memory": [], "of the device's memory": []}
    for turn in range(repeats + 1):
        for (name, rates), source, factor in zip(found.items(), (host, there), (1, 2), strict=True):
            del name
            before = device.mark()
            other.copy_(source, non_blocking=True)
            after = device.mark()
            device.synchronize()
            if turn:
                rates.append(factor * nbytes / before.elapsed_ms(after) / 1e6)
    return {name: figure(rates, "GB/s") for name, rates in found.items()}


if __name__ == "__main__":
    run_stage(run)
