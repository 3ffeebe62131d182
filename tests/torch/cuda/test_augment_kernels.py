"""Kernels of augmentation, compiled as C++, against the ops on the CPU."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock import transforms as T
from penstock.errors import ArgumentError
from penstock.sample import Array, SampleKeys
from penstock.torch.cuda.augmenting import (
    AugmentMemory,
    AugmentPlan,
    plan_cut_mix,
    plan_erasing,
    plan_mix_up,
    plan_pixels,
    supports,
)
from tests.torch.cuda.host_kernels import HostKernels, compile_kernels

SANITIZED = "PENSTOCK_SANITIZED_KERNELS"
"""Of a process that runs under the address sanitizer: the compiled kernels."""

Pixels = NDArray[np.uint8]


class AugmentKernels(HostKernels):
    """Kernels that run on the processor, over arrays."""

    def change(self, plan: AugmentPlan, images: Pixels) -> Pixels:
        """Run a plan over HWC images, in arrays of exactly the sizes that it needs."""
        windows = images.transpose(0, 3, 1, 2).copy()
        second = np.full(windows.size if plan.needs_second else 0, 0xA5, np.uint8)
        measured = np.full(len(images) * 768, 0x5A, np.uint8)
        memory = AugmentMemory(
            windows.ctypes.data,
            second.ctypes.data,
            plan.steps.ctypes.data,
            plan.tables.ctypes.data,
            plan.weights.ctypes.data,
            measured.ctypes.data,
        )
        plan.run(self, memory)
        return windows.transpose(0, 2, 3, 1)

    def change_tensor(self, plan: AugmentPlan, tensor: Array, dtype: int, *, axes: str = "CHW") -> None:
        """Run a plan over a batch of values, in place."""
        image, *others = (stride // tensor.itemsize for stride in tensor.strides)
        strides = dict(zip(axes, others, strict=True))
        plan.run(
            self,
            AugmentMemory(
                steps=plan.steps.ctypes.data,
                out=tensor.ctypes.data,
                strides=(image, *(strides[axis] for axis in "CHW")),
                dtype=dtype,
            ),
        )


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> AugmentKernels:
    """The kernels, compiled once."""
    if SANITIZED in os.environ:
        return AugmentKernels(Path(os.environ[SANITIZED]))
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: kernels cannot be compiled")
    return AugmentKernels(compile_kernels(tmp_path_factory.mktemp("augment")))


def make_images(count: int, width: int, height: int, seed: int = 0) -> Pixels:
    """Smooth pictures, noise, few colours, one colour, and grays, in turns."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    images = rng.integers(0, 256, (count, height, width, 3), np.uint8)
    for i in range(0, count, 2):
        a, b, c = rng.uniform(2, 30, 3)
        waves = np.stack([np.sin(x / a) + np.cos(y / b), np.cos(x / b + y / c), np.sin((x + y) / c)], axis=-1)
        images[i] = (waves * 70 + 128 + rng.normal(0, 4, waves.shape)).clip(0, 255)
    images[3::6] = images[3::6] // 100 * 90
    images[5::6] = rng.integers(0, 256, 3, np.uint8)
    images[4::6, :, :, 1:] = images[4::6, :, :, :1]
    return images


def draw_all(ops: Sequence[T.Op], images: Pixels, seed: int = 3) -> list[Array]:
    """What each op draws for a batch."""
    count, height, width = images.shape[:3]
    keys = SampleKeys(seed, 1, np.arange(count, dtype=np.int64))
    sizes = np.tile(np.array([[width, height]], np.int32), (count, 1))
    return [op.draw(keys, sizes, stream) for stream, op in enumerate(ops)]


def change_on_cpu(ops: Sequence[T.Op], params: Sequence[Array], images: Pixels) -> Pixels:
    """The same by the ops, one image after the other."""
    changed = []
    for i in range(len(images)):
        image: Any = images[i]
        for op, drawn in zip(ops, params, strict=True):
            image = op.native(image, drawn[i])
        changed.append(image)
    return np.stack(changed)


def assert_equal_to_cpu(kernels: AugmentKernels, ops: Sequence[T.Op], images: Pixels, seed: int = 3) -> None:
    """Compare every value of a batch."""
    params = draw_all(ops, images, seed)
    plan = plan_pixels(ops, params, (images.shape[2], images.shape[1]))
    np.testing.assert_array_equal(kernels.change(plan, images), change_on_cpu(ops, params, images))


EXAMPLES: dict[str, list[T.Op]] = {
    "brightness": [T.ColorJitter(brightness=(0, 3))],
    "contrast": [T.ColorJitter(contrast=(0, 3))],
    "saturation": [T.ColorJitter(saturation=(0, 3))],
    "hue": [T.ColorJitter(hue=0.5)],
    "jitter": [T.ColorJitter(0.4, 0.4, 0.4, 0.1)],
    "nothing": [T.ColorJitter()],
    "hsv": [T.RandomHSV(), T.RandomHSV(0.5, 1, 1)],
    "distort": [T.RandomPhotometricDistort(p=0.7)],
    "grayscale": [T.Grayscale(p=0.5)],
    "posterize": [T.Posterize(3), T.Posterize(8, p=1)],
    "solarize": [T.Solarize(70.5), T.Solarize(256, p=1)],
    "invert": [T.Invert()],
    "auto_contrast": [T.AutoContrast()],
    "equalize": [T.Equalize()],
    "lookup": [T.LookupTable.gamma(2.2, p=0.5), T.LookupTable(np.arange(768).reshape(256, 3) // 3)],
    "sharpness": [T.Sharpness(0.0), T.Sharpness(3.5, p=1)],
    "blur": [T.GaussianBlur(23)],
    "blur by a rectangle": [T.GaussianBlur((3, 9), 1.3)],
    "long blur": [T.GaussianBlur(255, (0.1, 60))],
    "rotation": [T.RandomRotation(180, fill=(1, 2, 3)), T.RandomRotation(40, "bilinear")],
    "right angles": [T.RandomRotation((90, 90)), T.RandomRotation((180, 180))],
    "affine": [T.RandomAffine(20, (0.2, 0.1), (0.5, 1.5), 10, "bilinear", 9)],
    "upright": [T.RandomAffine(0, (0.3, 0.3), (0.4, 1.7))],
    "shear": [T.RandomAffine(0, shear=80)],
    "far away": [T.RandomAffine(30, scale=(1e-4, 1e-3)), T.RandomAffine(30, scale=(1e-9, 1e-8))],
    "far away, upright": [T.RandomAffine(0, scale=(1e-9, 1e-8))],
    "perspective": [T.RandomPerspective(0.8, 0.8), T.RandomPerspective(0.9, 0.9, "nearest")],
    "erasing": [T.RandomErasing(0.8, value=(1, 2, 3))],
    "augment": [T.RandAugment(3, 12), T.RandAugment(2, 30, filter="bilinear", fill=(3, 2, 1))],
    "trivial": [T.TrivialAugmentWide()],
    "all": [
        T.GaussianBlur(5),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.RandAugment(),
        T.Grayscale(p=0.2),
        T.Equalize(),
        T.Sharpness(2),
        T.Solarize(p=0.2),
        T.AutoContrast(),
        T.RandomErasing(),
    ],
}


@pytest.mark.parametrize("ops", EXAMPLES.values(), ids=EXAMPLES)
def test_kernels_equal_the_cpu_in_every_value(kernels: AugmentKernels, ops: list[T.Op]) -> None:
    """Each op on a device, with what it draws for a batch, gives the values of the op on the CPU."""
    images = make_images(36, 70, 45)

    assert_equal_to_cpu(kernels, ops, images)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 1), (64, 8), (65, 9), (129, 2)])
def test_kernels_equal_the_cpu_at_odd_sizes(kernels: AugmentKernels, size: tuple[int, int]) -> None:
    """Images of one pixel, of one row, and of a whole number of tiles give the values of the CPU."""
    images = make_images(6, *size)

    for ops in EXAMPLES.values():
        assert_equal_to_cpu(kernels, ops, images, seed=9)


@pytest.mark.parametrize("factor", [0.4, 0.5, 2.5, 10, 10 / 3, 5 / 3])
def test_positions_between_two_pixels_equal_the_cpu(kernels: AugmentKernels, factor: float) -> None:
    """Where a position is on the border of two pixels, rounding errors choose between them as on the CPU."""
    for width in range(40, 72):
        images = make_images(2, width, 111 - width)
        for filter_name in ("nearest", "bilinear"):
            assert_equal_to_cpu(kernels, [T.RandomAffine(0, scale=(factor, factor), filter=filter_name)], images)


def test_all_colours_turn_as_on_the_cpu(kernels: AugmentKernels) -> None:
    """Every fourth value of each channel, turned by many hues, equals the CPU's colour."""
    levels = np.append(np.arange(0, 256, 4), 255).astype(np.uint8)
    colours = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(1, 65 * 65, 65, 3)
    images = np.repeat(colours, 2, axis=0)

    for seed in range(4):
        assert_equal_to_cpu(kernels, [T.ColorJitter(hue=0.5), T.RandomHSV(0.5, 1, 1)], images, seed)


def test_launches_have_rows_only_for_images_that_change(kernels: AugmentKernels) -> None:
    """A kernel is launched for the images that it changes, and not at all if there are none."""
    images = make_images(8, 20, 10)
    size, chosen = (20, 10), np.arange(8) % 2 == 0

    plan = plan_pixels([T.Equalize(), T.Invert()], [chosen, np.zeros(8, np.bool_)], size)
    nothing = plan_pixels([T.Invert()], [np.zeros(8, np.bool_)], size)

    assert [(launch.kernel, launch.steps.shape) for launch in plan.launches] == [
        ("measure", (4, 1)),
        ("change", (4, 1)),
    ]
    assert not nothing.launches
    assert np.array_equal(kernels.change(nothing, images), images)


def test_steps_on_single_pixels_run_in_one_launch() -> None:
    """Between two steps that need the whole image, one kernel changes each pixel by all steps."""
    ops = [T.ColorJitter(0.4, 0, 0.4, 0.1), T.Grayscale(p=0.2), T.Solarize(), T.RandomErasing(1.0)]
    images = make_images(16, 30, 30)

    plan = plan_pixels(ops, draw_all(ops, images), (30, 30))

    assert [launch.kernel for launch in plan.launches] == ["change"]


def test_images_are_copied_only_if_no_step_can_write_elsewhere() -> None:
    """A step on single pixels before or after a blur writes to the other memory; else a copy follows."""
    images = make_images(16, 30, 30)
    lists: list[list[T.Op]] = [[T.GaussianBlur(5)], [T.GaussianBlur(5), T.Invert(1)], [T.Invert(1), T.GaussianBlur(5)]]

    plans = [plan_pixels(ops, draw_all(ops, images), (30, 30)) for ops in lists]

    assert [[launch.kernel for launch in plan.launches] for plan in plans] == [
        ["blur", "change"],
        ["blur", "change"],
        ["change", "blur"],
    ]


class _NoKernels:
    """Refuses to launch."""

    def launch(self, name: str, argument: ctypes.Structure, columns: int, rows: int, threads: int) -> None:
        """Fail."""
        raise AssertionError(name, argument, columns, rows, threads)


class _OwnJitter(T.ColorJitter):
    """A subclass, which may compute something else."""


@pytest.mark.parametrize(
    "op",
    [T.HorizontalFlip(), T.RandomErasing(value="random"), T.Grayscale(1), _OwnJitter(0.4), T.Lambda(np.copy)],
    ids=lambda op: type(op).__name__,
)
def test_ops_without_a_kernel_are_refused_by_name(op: T.Op) -> None:
    """An op that a device cannot compute exactly is named in the error."""
    assert not supports(op)

    with pytest.raises(ArgumentError, match=type(op).__name__):
        plan_pixels([op], [np.zeros((2, 0))], (8, 8))


def test_arguments_that_do_not_fit_are_refused() -> None:
    """All arrays of params have a row for each image; MixUp needs floats, as on the CPU."""
    with pytest.raises(ArgumentError, match="one array for each of 2 ops"):
        plan_pixels([T.Invert(), T.Invert()], [np.ones(3, np.bool_), np.ones(2, np.bool_)], (8, 8))
    with pytest.raises(ArgumentError, match="mix_up needs a tensor of floats"):
        plan_mix_up(0.5, 2, (8, 8)).run(_NoKernels(), AugmentMemory())


FLOATS = {"float32": 1, "float16": 2, "bfloat16": 3}
"""Dtypes of tensors that hold floats, and their numbers in ``enum Dtype``."""


def make_tensor(dtype: str, *, channels_last: bool) -> Any:
    """A batch of normalised images, (7, 3, 10, 12)."""
    import torch

    values = torch.randn((7, 3, 10, 12), generator=torch.Generator().manual_seed(5)).to(getattr(torch, dtype))
    values[0, 0, 0, :4] = torch.tensor([0.0, -0.0, 1e-7, 3e-5])  # also subnormal numbers
    return values.to(memory_format=torch.channels_last) if channels_last else values


def as_array(tensor: Any) -> Array:
    """The tensor's memory as an array; of bfloat16, its bits."""
    import torch

    array: Array = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_mixing_equals_the_cpu(kernels: AugmentKernels, dtype: str, channels_last: bool) -> None:
    """MixUp and CutMix in place give the values of the same classes on tensors of the CPU, in the same format."""
    mix, cut = T.MixUp(0.4, num_classes=3), T.CutMix(num_classes=3)
    labels = np.arange(7) % 3
    import torch

    for batch in range(8):
        tensor = make_tensor(dtype, channels_last=channels_last)
        mixed, _ = mix(tensor, torch.from_numpy(labels), batch=batch)
        moved, _ = cut(mixed, torch.from_numpy(labels), batch=batch)
        array = as_array(tensor)

        kernels.change_tensor(plan_mix_up(mix.draw_share(batch=batch), 7, (12, 10)), array, FLOATS[dtype])
        assert array.tobytes() == as_array(mixed).tobytes()
        kernels.change_tensor(plan_cut_mix(cut.draw_rectangle(12, 10, batch=batch), 7, (12, 10)), array, FLOATS[dtype])

        assert array.tobytes() == as_array(moved).tobytes()


def test_cut_mix_moves_bytes(kernels: AugmentKernels) -> None:
    """CutMix takes batches of uint8."""
    cut, images = T.CutMix(num_classes=2), np.ascontiguousarray(make_images(5, 12, 10).transpose(0, 3, 1, 2))
    expected, _ = cut(images, np.zeros(5, np.int64), batch=3)

    kernels.change_tensor(plan_cut_mix(cut.draw_rectangle(12, 10, batch=3), 5, (12, 10)), images, 0)

    assert np.array_equal(images, expected)


def test_labels_mix_as_images_do() -> None:
    """The targets of `mix_labels` by the share that was drawn are those of the whole call."""
    mix, labels = T.MixUp(0.4, num_classes=3), np.arange(7) % 3
    _, targets = mix(np.zeros((7, 3, 2, 2), np.float32), labels, batch=4, epoch=2)

    assert np.array_equal(mix.mix_labels(labels, mix.draw_share(batch=4, epoch=2)), targets)


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_erasing_floats_equals_the_cpu(kernels: AugmentKernels, layout: str, dtype: str) -> None:
    """RandomErasing after Normalize gives the values of the pipeline in the dtype and layout of the tensor."""
    images = make_images(12, 31, 22)
    op = T.RandomErasing(0.8, value=(0.1, -2.5, 1e-6))
    (params,) = draw_all([op], images)
    before = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout(layout, dtype)]
    tensor = np.stack([T.Pipeline(before)(image) for image in images])
    normalized = [T.Pipeline(before[:1])(image) for image in images]
    erased = [op.native(image, drawn) for image, drawn in zip(normalized, params, strict=True)]
    expected = np.stack([T.Pipeline([before[1]])(image) for image in erased])

    kernels.change_tensor(plan_erasing(op, params, (31, 22)), tensor, FLOATS[dtype], axes=layout)

    assert np.array_equal(tensor, expected)
    assert not np.array_equal(tensor[0], tensor[1])


@pytest.mark.skipif(SANITIZED in os.environ, reason="this process is the one that runs under the sanitizer")
@pytest.mark.slow
def test_kernels_stay_within_their_memory(tmp_path: Path) -> None:
    """All comparisons above run under the sanitizers of addresses and undefined behaviour, which find nothing."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: kernels cannot be compiled")
    asked = subprocess.run(["g++", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    if not (sanitizer := Path(asked.stdout.strip())).is_absolute():
        pytest.skip("the address sanitizer of g++ is not installed")
    options = ("-g", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
    library = compile_kernels(tmp_path, *options)
    environment = os.environ | {
        SANITIZED: str(library),
        "LD_PRELOAD": str(sanitizer.resolve()),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "equal or moves", __file__]

    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-4000:]
