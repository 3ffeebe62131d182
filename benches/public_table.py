"""Claim: penstock decodes JPEGs faster than each decoder of the field's public table, with the same pixels.

The table is that of ``imread_benchmark`` (github.com/ternaus/imread_benchmark; arXiv 2605.08731), whose rows are
libraries that make RGB arrays, HWC and uint8, of JPEGs in memory. Here are those that trainings use, with their own
fastest call: first on one thread, then inside of torch's DataLoader with 2 worker processes, whose samples are decoded
arrays, as that program measures it; there is also penstock's loader of the same dataset. Libraries that are not
installed are named as skipped. First, all pixels are compared with Pillow's, and a row says how many pictures differ.
Where ``imread_benchmark`` itself is installed, it finds penstock by an entry point.
"""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from harness import Timing, arguments, images_folder, in_turns, jpegs, machine, ratio, table, versions

Decode = Callable[[bytes], np.ndarray]

WORKERS, BATCH = 2, 32


def make_pillow(module: Any) -> Decode:
    """Pillow, in RGB."""
    return lambda encoded: np.array(module.open(io.BytesIO(encoded)).convert("RGB"))


def make_simplejpeg(module: Any) -> Decode:
    """simplejpeg, with the exact DCT, its default."""
    return lambda encoded: module.decode_jpeg(encoded, colorspace="RGB")


def make_opencv(module: Any) -> Decode:
    """OpenCV, which converts by itself."""
    module.setNumThreads(1)
    return lambda encoded: module.imdecode(np.frombuffer(encoded, np.uint8), module.IMREAD_COLOR_RGB)


def make_torchvision(module: Any) -> Decode:
    """torchvision; the axes are those of its tensor, in another order."""
    torch = importlib.import_module("torch")

    def decode(encoded: bytes) -> np.ndarray:
        tensor = torch.frombuffer(bytearray(encoded), dtype=torch.uint8)
        return np.ascontiguousarray(module.decode_image(tensor, mode="RGB").permute(1, 2, 0).numpy())

    return decode


def make_torchcodec(module: Any) -> Decode:
    """TorchCodec; as torchvision."""
    return lambda encoded: np.ascontiguousarray(module.decode_image(encoded).permute(1, 2, 0).numpy())


def make_kornia(module: Any) -> Decode:
    """kornia-rs, by the decoder of JPEGs of its version."""
    if hasattr(module, "decode_image_jpeg"):
        return lambda encoded: np.asarray(module.decode_image_jpeg(encoded))
    decoder = module.io.ImageDecoder()
    return lambda encoded: np.asarray(decoder.decode(encoded))


def make_penstock(module: Any) -> Decode:
    """penstock."""
    decode: Decode = module.decode
    return decode


ROWS: Final[dict[str, tuple[str, Callable[[Any], Decode]]]] = {
    "Pillow": ("PIL.Image", make_pillow),
    "simplejpeg": ("simplejpeg", make_simplejpeg),
    "OpenCV": ("cv2", make_opencv),
    "torchvision": ("torchvision.io", make_torchvision),
    "TorchCodec": ("torchcodec.decoders", make_torchcodec),
    "kornia-rs": ("kornia_rs", make_kornia),
    "penstock": ("penstock", make_penstock),
}
"""By library: the module that is imported, and what makes its decoder."""


def find_decoders(images: list[bytes]) -> tuple[dict[str, Decode], list[str]]:
    """The decoders that work here, and a line for each that does not."""
    found: dict[str, Decode] = {}
    skipped = []
    for name, (module, make) in ROWS.items():
        try:
            decode = make(importlib.import_module(module))
            decode(images[0])
        except (ImportError, RuntimeError, AttributeError) as error:  # RuntimeError: TorchCodec without FFmpeg
            skipped.append(f"{name} is skipped: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
        else:
            found[name] = decode
    return found, skipped


def compare(decoders: dict[str, Decode], images: list[bytes]) -> str:
    """How many pictures each decoder gives other pixels than Pillow; penstock must give the same."""
    wanted = [decoders["Pillow"](encoded) for encoded in images]
    said = []
    for name, decode in decoders.items():
        differs, most = 0, 0
        for encoded, want in zip(images, wanted, strict=True):
            pixels = decode(encoded)
            if pixels.shape != want.shape:  # a gray file
                differs += 1
            elif not np.array_equal(pixels, want):
                differs, most = differs + 1, max(most, int(np.abs(pixels.astype(int) - want).max()))
        if name == "penstock" and differs:
            raise SystemExit(f"{differs} pictures differ from Pillow's")
        said.append(f"{name} {differs} (at most {most} levels)" if differs else f"{name} 0")
    return ", ".join(said)


class Decoded:
    """A dataset of pictures in memory, which are decoded when they are asked for."""

    def __init__(self, images: list[bytes], decode: Decode) -> None:
        self.images, self.decode = images, decode

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.decode(self.images[index])


def keep(samples: list[np.ndarray]) -> list[np.ndarray]:
    """A batch: pictures of different sizes are not stacked."""
    return samples


def over(decode: Decode, images: list[bytes]) -> Callable[[], float]:
    """Decode all pictures on this thread."""

    def run() -> float:
        for encoded in images:
            decode(encoded)
        return len(images)

    return run


def epoch(loader: Any) -> Callable[[], float]:
    """Count the pictures of an epoch."""
    return lambda: sum(len(batch) for batch in loader)


def say(timings: dict[str, Timing], rows: dict[str, Decode]) -> None:
    """Print a table against the fastest of the others."""
    rivals = [name for name in timings if name in rows and name != "penstock"]
    rival = max(rivals, key=lambda name: timings[name].median)
    print(table(timings, against=rival))
    middle, low, high = ratio(timings["penstock"], timings[rival])
    print(f"\npenstock is {middle:.2f} ({low:.2f} - {high:.2f}) times as fast as {rival}, the fastest of the others.\n")


def main() -> None:
    """Check, measure and print."""
    options = arguments(__doc__, rounds=7)
    warnings.filterwarnings("ignore", message="The image decoding and encoding", category=DeprecationWarning)
    images = [path.read_bytes() for path in jpegs(images_folder(options.images))]
    decoders, skipped = find_decoders(images)
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    print("### The rows of the public table of JPEG decoders\n")
    print(f"{len(images)} JPEGs in memory, {sum(map(len, images)) / 1e6:.1f} MB; {machine()}; ", end="")
    libraries = "Pillow", "simplejpeg", "opencv-python-headless", "torchvision", "torchcodec", "kornia-rs"
    print(versions("penstock-data", *libraries, "torch", "numpy") + ".")
    print("".join(f"{line}.\n" for line in skipped), end="")
    print(f"Pictures with other pixels than Pillow's: {compare(decoders, images)}.\n")
    print("#### One thread\n")
    candidates = {name: over(decode, images) for name, decode in decoders.items()}
    say(in_turns(candidates, rounds=options.rounds, unit="images/s"), decoders)
    print(f"#### Loaders, {WORKERS} workers, batches of {BATCH} decoded pictures\n")
    shared: dict[str, Any] = {"batch_size": BATCH, "num_workers": WORKERS, "persistent_workers": True}
    loaders = {
        name: torch.utils.data.DataLoader(Decoded(images, decode), collate_fn=keep, **shared)
        for name, decode in decoders.items()
    }
    ours = importlib.import_module("penstock.torch").DataLoader
    loaders["penstock, in penstock.torch.DataLoader"] = ours(
        Decoded(images, decoders["penstock"]), collate_fn=keep, workers="threads", **shared
    )
    say(
        in_turns({name: epoch(each) for name, each in loaders.items()}, rounds=options.rounds, unit="images/s"),
        decoders,
    )


if __name__ == "__main__":
    main()
