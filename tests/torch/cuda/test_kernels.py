"""The kernels, run on the processor, give the pixels of the CPU's path: every format, crop, filter and scale."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock import _native
from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.sample import SampleKeys
from penstock.torch.cuda.augmenting import AugmentPlan, plan_pixels
from penstock.torch.cuda.compiler import compile_kernels as compile_for_device
from penstock.torch.cuda.compiler import kernel_sources, require_bindings
from penstock.torch.cuda.decoder import PacketDecoder, RowFormat
from penstock.torch.cuda.packets import KERNELS, plan_groups
from tests.torch.cuda.host_kernels import HostKernels, compile_kernels, has_compiler
from tests.torch.cuda.pictures import Case, cases_of, jpegs, mutated, records
from tests.torch.cuda.test_augment_kernels import EXAMPLES, AugmentKernels, assert_equal_to_cpu, make_images

ROOT = Path(__file__).parents[3]
FILTERS = ["box", "bilinear", "bicubic", "cv2-linear", "cv2-area", "cv2-nearest"]


def decode(kernels: HostKernels, case: Case, packets: Any, budget: int = 1 << 30) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of packets, and their status."""
    row_format = RowFormat(case.channels, case.height, case.width, torch.uint8, is_reversed=case.mode == "BGR")
    decoder = PacketDecoder(kernels, torch.device("cpu"), row_format, budget)
    return decoder.decode(packets, np.array([0, len(packets)]))


@pytest.mark.parametrize("filter_name", FILTERS)
@pytest.mark.parametrize("kind", ["tiles", "rows"])
def test_rows_equal_those_of_the_cpu(host_kernels: HostKernels, filter_name: str, kind: str) -> None:
    """All samplings, restart intervals, scales, orientations, flips and modes: no value differs."""
    compared = 0
    for (name, image), seed in zip(jpegs().items(), itertools.count()):
        for case in cases_of(image, seed, count=4):
            expected, failures = case.fill(image, filter_name)
            packets, _, refused = case.write_packets(image, filter_name, kind)
            assert not failures, f"{name}: {failures}"
            assert not refused, f"{name}: {refused}"
            rows, status = decode(host_kernels, case, packets)
            assert not status.any(), f"{name}: {case}"
            np.testing.assert_array_equal(rows.numpy(), expected, err_msg=f"{name}: {case}")
            compared += 1
    assert compared >= 40


@pytest.mark.parametrize("filter_name", ["bilinear", "cv2-area"])
def test_records_of_coefficients_give_the_rows_of_the_cpu(host_kernels: HostKernels, filter_name: str) -> None:
    """All samplings, crops and scales, several segments in a row, progressive: no value differs."""
    for (name, record), seed in zip(records().items(), itertools.count()):
        for random in cases_of(record, seed, count=5):
            for case in (replace(random, quality=quality) for quality in (None, 1.0)):
                expected, failures = case.fill(record, filter_name)
                packets, _, refused = case.write_packets(record, filter_name, "tiles")
                assert not failures, f"{name}: {failures}"
                assert not refused, f"{name}: {refused}"
                rows, status = decode(host_kernels, case, packets)
                assert not status.any(), f"{name}: {case}"
                np.testing.assert_array_equal(rows.numpy(), expected, err_msg=f"{name}: {case}")
    assert "coefficients" in host_kernels.launched
    assert "entropy" not in host_kernels.launched


def test_only_the_segments_of_a_crop_are_copied() -> None:
    """A crop of a record needs less of it than the whole image, and 1/8 only its DC coefficients."""
    record = records()["progressive, gray"]
    whole, crop, eighth = (
        len(Case(region, *size, quality=1.0).write_packets(record, "bilinear", "tiles")[0])
        for region, size in (
            ((0, 0, 600, 41), (600, 41)),
            ((0, 0, 100, 8), (100, 8)),
            ((0, 0, 600, 41), (75, 5)),
        )
    )

    assert crop - 448 < (whole - 448) / 4
    assert eighth - 448 < (whole - 448) / 2


def test_a_damaged_record_is_refused() -> None:
    """A byte that changed is found when the packet is written, and the failure says which image it is of."""
    record = records()["progressive"]
    case = Case((0, 0, 203, 99))
    for place in (-1, -len(record) // 2, 60):
        damaged = bytearray(record)
        damaged[place] ^= 1
        _, _, refused = case.write_packets(bytes(damaged), "bilinear", "tiles")
        assert [failure[0] for failure in refused] == [0]


def test_segments_of_another_length_are_seen(host_kernels: HostKernels) -> None:
    """Bytes that the checksums of a record let pass, but that are not as long as the segment, set the status."""
    record = records()["wide, of many bits"]
    case = Case((0, 0, 1033, 30))
    packets, _, _ = case.write_packets(record, "bilinear", "tiles")
    entries, data = (int(packets[4 * word :][:4].view("<i4")[0]) for word in (57, 60))
    for place, value in ((6, 3), (4, 100), (data - entries + 100, 0xFF), (data - entries + 3, 0xFF)):
        changed = packets.copy()
        changed[entries + place] ^= value
        _, status = decode(host_kernels, case, changed)
        assert status[0]


def test_constants_are_those_of_the_cpu() -> None:
    """The kernels' profiles and codes of masks are generated from the ones of the core."""
    command = [sys.executable, str(ROOT / "native" / "kernel_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_photographs_equal_those_of_the_cpu(host_kernels: HostKernels, photographs_dir: Path) -> None:
    """Photographs of any size, a crop and a scale each."""
    for seed, path in enumerate(sorted(photographs_dir.glob("*/*.jpg"))[:400]):
        image = path.read_bytes()
        for case in cases_of(image, seed, count=1):
            expected, failures = case.fill(image, "bilinear")
            packets, _, refused = case.write_packets(image, "bilinear", "tiles")
            assert not failures, path
            assert not refused, path
            rows, status = decode(host_kernels, case, packets)
            assert not status.any(), path
            np.testing.assert_array_equal(rows.numpy(), expected, err_msg=f"{path.name}: {case}")


def test_damage_is_seen(host_kernels: HostKernels) -> None:
    """Bytes that changed inside the scan, under a valid seek table: where the CPU fails, the status is not 0; where it
    is 0, the pixels are the CPU's.
    """
    seen = equal = 0
    for (name, image), seed in zip(jpegs().items(), itertools.count()):
        table = _native.build_index(image, "tiles")
        for damaged in mutated(image, seed, count=12):
            for case in cases_of(image, seed, count=1):
                packets, _, refused = case.write_packets(damaged, "bilinear", "tiles", table)
                if refused:
                    continue
                rows, status = decode(host_kernels, case, packets)
                expected, failures = case.fill(damaged, "bilinear", table)
                seen += int(status[0]) != 0
                if failures:
                    assert status[0], f"{name}: {failures}"
                elif not status[0]:
                    equal += 1
                    np.testing.assert_array_equal(rows.numpy(), expected, err_msg=f"{name}: {case}")
    assert seen >= 20
    assert equal >= 5


def test_hostile_files_do_no_harm(host_kernels: HostKernels, hostile_dir: Path) -> None:
    """A malformed file is refused, or decoded to the CPU's pixels, or has a status."""
    for path in sorted(hostile_dir.glob("*.jpg")):
        image = path.read_bytes()
        width, height = _native.sizes([image])[0].tolist()
        if not 0 < width * height <= 1 << 22:
            continue
        for case in cases_of(image, 0, count=2):
            packets, _, refused = case.write_packets(image, "bilinear", "tiles")
            if refused:
                continue
            expected, failures = case.fill(image, "bilinear")
            rows, status = decode(host_kernels, case, packets)
            if not status[0]:
                assert not failures, path
                np.testing.assert_array_equal(rows.numpy(), expected, err_msg=path.name)


def test_threads_depend_on_each_other_only_across_barriers(host_kernels: HostKernels, tmp_path: Path) -> None:
    """The threads of a block, run from the last to the first, give the same rows."""
    if not has_compiler():
        pytest.skip("there is no compiler for C++ on this machine")
    library = compile_kernels(tmp_path, "-DREVERSED")
    reversed_kernels = HostKernels(library)
    for (name, image), seed in zip(jpegs().items(), itertools.count()):
        for case, source in itertools.product(cases_of(image, seed, count=2), (image, records()[name])):
            packets, _, _ = case.write_packets(source, "bicubic", "tiles")
            rows, status = decode(host_kernels, case, packets)
            reversed_rows, reversed_status = decode(reversed_kernels, case, packets)
            assert torch.equal(rows, reversed_rows), name
            assert torch.equal(status, reversed_status), name

    assert_equal_to_cpu(AugmentKernels(library), EXAMPLES["all"], make_images(6, 70, 45))


def test_batches_in_groups_are_the_same(host_kernels: HostKernels) -> None:
    """Whatever memory there is between the steps, a batch is the same: of JPEGs, and of records of coefficients."""
    images = [image for name, jpeg in jpegs().items() for image in (jpeg, records()[name])]
    packets, offsets = [], [0]
    for image in images:
        case = Case(next(iter(cases_of(image, 3, count=1))).region, 40, 30)
        packets.append(case.write_packets(image, "bilinear", "tiles")[0])
        offsets.append(offsets[-1] + len(packets[-1]))
    joined, ends = np.concatenate(packets), np.array(offsets)
    row_format = RowFormat(3, 30, 40, torch.uint8)
    batches = []
    for budget in (1, 1 << 20, 1 << 30):
        decoder = PacketDecoder(host_kernels, torch.device("cpu"), row_format, budget)
        rows, status = decoder.decode(joined, ends)
        assert not status.any()
        batches.append(rows)
    assert torch.equal(batches[0], batches[1])
    assert torch.equal(batches[0], batches[2])
    assert torch.equal(batches[0][::2], batches[0][1::2])
    assert host_kernels.launched[-7:] == ["entropy", "coefficients", "idct", "color", "taps", "first_pass", "rows"]
    assert len(plan_groups(joined, ends, row_format.window, 1)) == len(images)
    assert len(plan_groups(joined, ends, row_format.window, 1 << 30)) == 1


def test_one_copy_brings_a_batch(host_kernels: HostKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is room behind the packets; else the batch is the same, and tells how much room it needs."""
    packets = []
    for image in jpegs().values():
        case = Case(next(iter(cases_of(image, 3, count=1))).region, 40, 30)
        packets.append(case.write_packets(image, "bilinear", "tiles")[0])
    joined, ends = np.concatenate(packets), np.cumsum([0, *map(len, packets)])
    ops = [T.ColorJitter(0.4, 0.4, 0.4, 0.2), T.GaussianBlur((5, 5), (0.5, 2.0))]
    keys, sizes = SampleKeys(1, 0, np.arange(len(packets))), np.tile(np.array([[40, 30]], np.int32), (len(packets), 1))
    drawn = [op.draw(keys, sizes, stream) for stream, op in enumerate(ops)]

    class Augment:
        def plan_pixels(self, first: int, count: int) -> AugmentPlan:
            return plan_pixels(ops, [params[first : first + count] for params in drawn], (40, 30))

        def plan_values(self, _first: int, _count: int) -> None:
            return None

    copies, from_numpy = [0], torch.from_numpy

    def count_copies(array: Any) -> torch.Tensor:
        copies[0] += 1
        return from_numpy(array)

    monkeypatch.setattr(torch, "from_numpy", count_copies)
    decoder = PacketDecoder(host_kernels, torch.device("cpu"), RowFormat(3, 30, 40, torch.float32), 1 << 20)
    separate, _ = decoder.decode(joined, ends, Augment())
    assert copies[0] > len(plan_groups(joined, ends, (3, 30, 40), 1 << 20)) > 1
    copies[0] = 0
    room = decoder.room(len(packets))
    together, status = decoder.decode(np.concatenate([joined, np.full(room, 255, np.uint8)]), ends, Augment())

    assert copies[0] == 1
    assert host_kernels.launched[-1] == "finish"
    assert {"windows", "change", "blur"} < set(host_kernels.launched)
    assert "rows" not in host_kernels.launched
    assert torch.equal(separate, together)
    assert not status.any()


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_floats_are_rounded_once_for_each_operation(host_kernels: HostKernels, dtype: torch.dtype, layout: str) -> None:
    """Every value of 0 to 255: ``value * scale + offset`` in float32, then the nearest of the dtype, ties to even."""
    image = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    packet = np.zeros(448 + image.nbytes, np.uint8)
    packet[:8].view("<i4")[:] = 2, len(packet)
    packet[448:] = image.transpose(2, 0, 1).reshape(-1)
    usual = (0.0171, 0.0175, 0.0174), (-2.117, -2.035, -1.804)
    for scale, offset in (usual, ((1e-7, 1e-5, 300.0), (0.0, 1e-7, 1.0))):
        row_format = RowFormat(3, 16, 16, dtype, layout, scale=scale, offset=offset)
        decoder = PacketDecoder(host_kernels, torch.device("cpu"), row_format)
        rows, _ = decoder.decode(packet, np.array([0, len(packet)]))
        product = image.astype(np.float32) * np.array(scale, np.float32)
        expected = torch.from_numpy(product + np.array(offset, np.float32)).to(dtype)
        assert torch.equal(rows[0] if layout == "HWC" else rows[0].permute(1, 2, 0), expected)


def test_channels_last_has_the_same_values(host_kernels: HostKernels) -> None:
    """torch's memory format changes strides, not values."""
    name, image = next(iter(jpegs().items()))
    case = next(iter(cases_of(image, 1, count=1)))
    packets, _, _ = case.write_packets(image, "bilinear", "tiles")
    row_format = RowFormat(case.channels, case.height, case.width, torch.float32)
    decoder = PacketDecoder(host_kernels, torch.device("cpu"), row_format)
    ends = np.array([0, len(packets)])
    plain, _ = decoder.decode(packets, ends)
    rows, _ = decoder.decode(packets, ends, channels_last=True)
    assert rows.is_contiguous(memory_format=torch.channels_last), name
    assert torch.equal(rows, plain)


@pytest.mark.parametrize(
    "architecture", ["sm_80", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sm_90", "sm_100"))]
)
def test_the_device_compiler_takes_them(architecture: str) -> None:
    """NVRTC compiles the kernels without a device."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC comes with torch for CUDA", exc_type=ImportError)
    cubin = compile_for_device(architecture)

    assert cubin[:4] == b"\x7fELF"
    assert b" \n\0".split(b" ") == [b"", b"\n\0"], "NVRTC wrote to bytes that Python shares"
    for kernel in [*KERNELS, "change", "measure", "blur", "sharpen", "warp", "erase", "mix_up", "cut_mix"]:
        assert f".text.{kernel}\0".encode() in cubin


def test_the_sources_are_installed() -> None:
    """The kernels are a part of the package, so that it compiles them where it is installed."""
    assert {
        "decode.cu",
        "grid.h",
        "packet.h",
        "entropy.h",
        "coefficients.h",
        "idct.h",
        "color.h",
        "resize.h",
        "rows.h",
    } <= set(kernel_sources())


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVIDIA's bindings, the error says what to install."""
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(ArgumentError, match="pip install cuda-bindings"):
        require_bindings()


@pytest.mark.slow
def test_no_address_outside_of_buffers(tmp_path: Path) -> None:
    """These tests pass under the sanitizers of addresses and of undefined behaviour."""
    runtime = (
        shutil.which("g++")
        and subprocess.run(
            ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    if not has_compiler() or not runtime or not Path(runtime).is_file():
        pytest.skip("there is no g++ with an address sanitizer on this machine")
    library = compile_kernels(tmp_path, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-m", "tests.torch.cuda.sanitized", str(library), "10"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert "decoded" in done.stdout
