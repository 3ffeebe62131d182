"""What the device's compiler makes of the kernels, and how many blocks of threads a batch launches. Needs no device."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest

from penstock.errors import ArgumentError
from penstock.torch.cuda import compiler, packets
from penstock.torch.cuda.augmenting import Augment
from penstock.torch.cuda.augmenting_steps import STEP
from penstock.torch.cuda.compiler import kernel_sources
from penstock.torch.cuda.decoder import _KernelBatch
from penstock.torch.cuda.packets import BLOCK, KERNELS, plan_groups
from tests.torch.cuda.compiler_report import compile_with_report


@pytest.mark.parametrize(
    "architecture", ["sm_90", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sm_80", "sm_100"))]
)
def test_kernels_stay_in_registers_and_divide_in_32_bits(architecture: str) -> None:
    """No kernel has a stack frame, spills registers, or divides numbers of 64 bits (some 70 instructions)."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC comes with torch for CUDA", exc_type=ImportError)

    ptx, reports = compile_with_report(architecture)

    assert set(KERNELS) < set(reports) == set(re.findall(r"\.entry (\w+)", ptx))
    assert {name: report.local_nbytes for name, report in reports.items()} == dict.fromkeys(reports, 0)
    assert re.findall(r"\b(?:div|rem)\.[su]64", ptx) == []
    assert re.search(r"\b(?:div|rem)\.[su]32", ptx), "divisions are found"


def test_arguments_have_the_layout_that_nvrtc_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch copies the bytes of the host's structure: sizes and places of fields are those of the kernels' code."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC comes with torch for CUDA", exc_type=ImportError)
    places = {
        struct: {name: getattr(made, name).offset for name, *_ in made._fields_} | {"": ctypes.sizeof(made)}
        for struct, made in (("Batch", _KernelBatch), ("Augment", Augment))
    }
    places["Step"] = {name: place for name, (_, place, *_) in (STEP.fields or {}).items()} | {"": STEP.itemsize}
    sources = kernel_sources()
    for struct, fields in places.items():
        numbers = [
            f"((char *)&(({struct} *)0)->{name} - (char *)0)" if name else f"sizeof({struct})" for name in fields
        ]
        array = f'\nextern "C" __constant__ u64 layout_of_{struct}[] = {{{", ".join(numbers)}}};\n'
        sources["decode.cu"] += array.encode()
    monkeypatch.setattr(compiler, "kernel_sources", lambda: sources)

    ptx = compiler.compile_kernels("compute_90").decode("ascii", "replace")

    arrays = re.findall(r"\.b8 layout_of_(\w+)\[(\d+)\] = \{([\d, ]+)\}", ptx)  # without the zeros at the end
    found = {struct: bytes(map(int, values.split(","))).ljust(int(size), b"\0") for struct, size, values in arrays}
    assert {struct: np.frombuffer(values, "<u8").tolist() for struct, values in found.items()} == {
        struct: list(fields.values()) for struct, fields in places.items()
    }


def header(width: int, height: int, target: int = 224) -> np.ndarray:
    """The words of a packet of a whole photograph in 4:2:0, resized down first, with 40 blocks a segment."""
    words = np.zeros(112, "<i4")
    blocks = -(-width // 16) * -(-height // 16) * 6
    words[:10] = 1, 448, blocks, 64 * blocks, 3 * width * height, 2 * target * 9, 0, 0, blocks // 40, 3
    words[12:14], words[[17, 27]], words[34] = (width, height), target, 1
    words[6] = 2 * 3 * target * width
    return words


def plan(headers: list[np.ndarray], window: tuple[int, int, int], budget: int = 1 << 40) -> list[packets.Group]:
    """Divide packets that have headers only."""
    joined = np.concatenate(headers).view(np.uint8)
    return plan_groups(joined, 448 * np.arange(len(headers) + 1), window, budget)


def test_no_block_of_threads_is_empty() -> None:
    """A photograph of 48 megapixels among 60 small ones: each image has the blocks that it needs."""
    sizes = [(500, 375)] * 30 + [(8000, 6000)] + [(333, 500)] * 30

    (group,) = plan([header(*size) for size in sizes], (3, 224, 224))

    threads = {"color": [-(-width // 4) * height for width, height in sizes], "rows": [224 * 224] * 61}
    threads["idct"] = [8 * 6 * -(-width // 16) * -(-height // 16) for width, height in sizes]
    threads["first_pass"] = [-(-width // 4) * 3 * 224 for width, _ in sizes]
    threads["taps"] = [448] * 61
    for name, needed in threads.items():
        blocks = [-(-count // BLOCK) for count in needed]
        assert np.diff(group.starts[KERNELS.index(name)]).tolist() == blocks, name
    launched = {name: int(group.starts[KERNELS.index(name), -1]) for name in threads}
    assert launched["color"] < 61 * -(-2000 * 6000 // BLOCK) / 20


def test_images_without_work_have_no_blocks() -> None:
    """An image that the worker decoded needs rows only, wherever it is in the batch."""
    pixels = np.zeros(112, "<i4")
    pixels[:2] = 2, 448
    photograph = header(100, 80)

    (group,) = plan([pixels, photograph, pixels, photograph, pixels], (3, 8, 8))

    for name in ("entropy", "idct", "color", "taps", "first_pass"):
        assert (np.diff(group.starts[KERNELS.index(name)]) > 0).tolist() == [False, True, False, True, False], name
    assert np.diff(group.starts[KERNELS.index("rows")]).tolist() == [1] * 5


def test_launches_have_less_than_2_31_blocks() -> None:
    """Images whose blocks a launch cannot number are divided, whatever memory there is; larger rows are refused."""
    pixels = np.zeros(112, "<i4")
    pixels[:2] = 2, 448

    groups = plan([pixels] * 300, (1, 1 << 15, 1 << 15))

    assert [group.count for group in groups] == [255, 45]
    assert max(int(group.starts[:, -1].max()) for group in groups) < 2**31
    with pytest.raises(ArgumentError, match="3 x 32768 x 32768"):
        plan([pixels], (3, 1 << 15, 1 << 15))
