"""Claim: PNG and WebP photographs are cropped, resized and normalised faster than by Pillow or OpenCV.

The photographs as PNG (Pillow's and OpenCV's default compression), lossy and lossless WebP, in memory, one thread
each, in turns in one run. RandomResizedCrop 224, flip, normalised, float32 CHW: penstock fills rows of a batch; torch
+ Pillow is torchvision's usual transforms; OpenCV decodes, cuts the same boxes, resizes (linear), normalises. Masks
are label maps as gray PNG: only decoded. "16 bits" are gray PNGs of 16 bits, in torch as floats. Pixels are those of
Pillow for penstock (tests); OpenCV resizes otherwise.

torchvision's own decoder (libpng, libwebp) gives tensors, which the same transforms crop and resize. DALI decodes on
the CPU, with its fused crop and one thread. OpenCV (``opencv-python-headless``) and DALI (``nvidia-dali-cuda120``) are
left out if they are not installed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torchvision.io
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions
from numpy.typing import NDArray
from PIL import Image
from torchvision.transforms import v2

from penstock import _native
from penstock import transforms as T
from penstock.sample import SampleKeys

try:
    import cv2
except ImportError:
    cv2 = None
try:
    from nvidia import dali
except ImportError:
    dali = None

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DEEP = (0.5, 0.25)
CHUNK = 25


def written(image: Image.Image, form: str, **options: Any) -> bytes:
    """The file of an image."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def label_map(image: Image.Image) -> Image.Image:
    """A mask of 20 classes with the outlines of the photograph."""
    small = image.convert("L").resize((image.width // 16 + 1, image.height // 16 + 1))
    smooth = np.asarray(small.resize(image.size, Image.Resampling.BICUBIC))
    return Image.fromarray(smooth // 13)


def deep_gray(image: Image.Image) -> Image.Image:
    """The photograph in gray with 16 bits, smoothed so that the lower ones are used: as scans and depth maps are."""
    small = image.convert("F").resize((image.width // 2, image.height // 2), Image.Resampling.BICUBIC)
    smooth = np.asarray(small.resize(image.size, Image.Resampling.BICUBIC))
    return Image.fromarray((smooth.clip(0, 255) * 257).astype(np.uint16))


def penstock_rows(images: Sequence[bytes], *, is_deep: bool = False) -> Callable[[], float]:
    """Rows of a batch, from the fused path."""
    first, last = (T.Decode(mode="I;16"), T.Normalize(*DEEP)) if is_deep else (T.Decode(), T.Normalize(MEAN, STD))
    ops = [first, T.RandomResizedCrop(224), T.HorizontalFlip(), last, T.ToLayout("CHW")]
    program = T.Pipeline(ops).compile("image")
    out = np.empty((CHUNK, 1 if is_deep else 3, 224, 224), np.float32)

    def run() -> float:
        for start in range(0, len(images), CHUNK):
            chunk = images[start : start + CHUNK]
            program.fill(chunk, out, SampleKeys(0, 0, np.arange(start, start + len(chunk))))
        return len(images)

    return run


def make_transform(*, of_tensors: bool) -> v2.Compose:
    """torchvision's usual transforms."""
    first = [] if of_tensors else [v2.PILToTensor()]
    crop = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    return v2.Compose([*crop, *first, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])


def torchvision_tensors(images: Sequence[bytes]) -> Callable[[], float]:
    """torchvision's transforms of the images of its own decoder."""
    transform, mode = make_transform(of_tensors=True), torchvision.io.ImageReadMode.RGB
    encoded = [torch.frombuffer(bytearray(image), dtype=torch.uint8) for image in images]

    def run() -> float:
        for image in encoded:
            transform(torchvision.io.decode_image(image, mode))
        return len(images)

    return run


def dali_arrays(images: Sequence[bytes]) -> Callable[[], float]:
    """Batches of DALI's pipeline on the CPU."""
    types, fn = dali.types, dali.fn
    encoded = [np.frombuffer(image, np.uint8) for image in images]

    @dali.pipeline_def(batch_size=CHUNK, num_threads=1, device_id=None, prefetch_queue_depth=1)
    def graph() -> Any:
        source = fn.external_source(lambda info: encoded[info.idx_in_epoch % len(encoded)], batch=False)
        shown = fn.decoders.image_random_crop(
            source, device="cpu", random_aspect_ratio=[3 / 4, 4 / 3], random_area=[0.08, 1.0]
        )
        small = fn.resize(shown, size=(224, 224), interp_type=types.INTERP_LINEAR, antialias=True)
        mean, deviation = ([255 * value for value in values] for values in (MEAN, STD))
        return fn.crop_mirror_normalize(
            small, dtype=types.FLOAT, output_layout="CHW", crop=(224, 224), mean=mean, std=deviation,
            mirror=fn.random.coin_flip(probability=0.5),
        )  # fmt: skip

    pipeline = graph()
    pipeline.build()

    def run() -> float:
        for _ in range(len(images) // CHUNK):
            pipeline.run()
        return len(images) // CHUNK * CHUNK

    return run


def pillow_tensors(images: Sequence[bytes]) -> Callable[[], float]:
    """torchvision's transforms of Pillow's images."""
    transform = make_transform(of_tensors=False)

    def run() -> float:
        for image in images:
            transform(Image.open(io.BytesIO(image)).convert("RGB"))
        return len(images)

    return run


def pillow_samples(images: Sequence[bytes]) -> Callable[[], float]:
    """Gray of 16 bits, read by Pillow, then torchvision's transforms of floats."""
    crop = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    transform = v2.Compose([*crop, v2.Normalize([DEEP[0]], [DEEP[1]])])

    def run() -> float:
        for image in images:
            transform(torch.from_numpy(np.array(Image.open(io.BytesIO(image))).astype(np.float32) / 65535)[None])
        return len(images)

    return run


def boxes(images: Sequence[bytes]) -> NDArray[np.int32]:
    """The boxes and flips that penstock draws."""
    program = T.Pipeline([T.Decode(), T.RandomResizedCrop(224), T.HorizontalFlip()]).compile("image")
    plan: NDArray[np.int32] = program.plan(SampleKeys(0, 0, np.arange(len(images))), _native.sizes(images)).geometry
    return plan


def opencv_arrays(images: Sequence[bytes], *, is_deep: bool = False) -> Callable[[], float]:
    """Decoded, cut, resized and normalised by OpenCV."""
    plan = boxes(images)
    largest, means, deviations = (65535, DEEP[:1], DEEP[1:]) if is_deep else (255, MEAN, STD)
    scale = np.array([1 / (largest * each) for each in deviations], np.float32)
    offset = np.array([-mean / std for mean, std in zip(means, deviations, strict=True)], np.float32)
    form = cv2.IMREAD_UNCHANGED if is_deep else cv2.IMREAD_COLOR_RGB

    def run() -> float:
        for image, (x0, y0, x1, y1, *_, flip) in zip(images, plan.tolist(), strict=True):
            pixels = cv2.imdecode(np.frombuffer(image, np.uint8), form)
            pixels = cv2.resize(pixels[y0:y1, x0:x1], (224, 224), interpolation=cv2.INTER_LINEAR)
            if flip:
                pixels = cv2.flip(pixels, 1)
            np.ascontiguousarray((pixels.reshape(224, 224, -1) * scale + offset).transpose(2, 0, 1))
        return len(images)

    return run


def each_of(images: Sequence[bytes], decode: Callable[[bytes], object]) -> Callable[[], float]:
    """Decode every image."""

    def run() -> float:
        for image in images:
            decode(image)
        return len(images)

    return run


def opencv_values(image: bytes) -> object:
    """A mask by OpenCV."""
    return cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_UNCHANGED)


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=7, tasks=("PNG", "PNG by OpenCV", "WebP", "lossless WebP", "masks", "16 bits"))
    pictures = [Image.open(path).convert("RGB") for path in jpegs(images_folder(options.images))[:100]]
    torch.set_num_threads(1)
    makers: dict[str, Callable[[Image.Image], bytes]] = {
        "PNG": partial(written, form="PNG"),
        "WebP": partial(written, form="WEBP", quality=80),
        "lossless WebP": partial(written, form="WEBP", lossless=True),
        "masks": lambda image: written(label_map(image), "PNG"),
        "16 bits": lambda image: written(deep_gray(image), "PNG"),
    }
    if cv2 is not None:
        cv2.setNumThreads(1)
        makers["PNG by OpenCV"] = lambda image: cv2.imencode(".png", np.asarray(image)[:, :, ::-1])[1].tobytes()
    print(f"{machine()}; {versions('numpy', 'pillow', 'torch', 'torchvision', 'opencv-python-headless')}\n")
    for task in options.tasks:
        if task not in makers:
            continue
        images = [makers[task](picture) for picture in pictures]
        if task == "masks":
            candidates = {"penstock": each_of(images, lambda image: T.Decode().mask(image, np.zeros(0)))}
            candidates["Pillow"] = each_of(images, lambda image: np.array(Image.open(io.BytesIO(image))))
            if cv2 is not None:
                candidates["OpenCV"] = each_of(images, opencv_values)
        elif task == "16 bits":
            candidates = {"penstock": penstock_rows(images, is_deep=True), "torch + Pillow": pillow_samples(images)}
            if cv2 is not None:
                candidates["OpenCV"] = opencv_arrays(images, is_deep=True)
        else:
            candidates = {"penstock": penstock_rows(images), "torch + Pillow": pillow_tensors(images)}
            candidates["torchvision.io"] = torchvision_tensors(images)
            if cv2 is not None:
                candidates["OpenCV"] = opencv_arrays(images)
            if dali is not None:
                candidates["DALI"] = dali_arrays(images)
        nbytes = sum(map(len, images)) / len(images) / 1000
        print(f"{task}: {len(images)} images, {nbytes:.0f} kB each\n")
        print(table(in_turns(candidates, rounds=options.rounds, unit="images/s"), against="penstock"), end="\n\n")


if __name__ == "__main__":
    main()
