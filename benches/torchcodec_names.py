"""Claim: ``penstock.torch.decoders`` decodes JPEGs at least twice as fast as TorchCodec, with the same tensors.

One thread, from bytes in memory to tensors. Before, every value of every image is compared in each mode. PNG and WebP:
the same pictures, saved anew by Pillow. It needs TorchCodec; without it, it says so and measures nothing.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable

import torch
from harness import arguments, images_folder, in_turns, jpegs, machine, table, versions
from PIL import Image

from penstock.torch import decoders

KINDS = {"JPEG": ("RGB", "GRAY"), "PNG": ("RGB",), "WEBP": ("RGB",)}


def saved(encoded: bytes, kind: str) -> bytes:
    """Save an image anew."""
    file = io.BytesIO()
    Image.open(io.BytesIO(encoded)).convert("RGB").save(file, kind)
    return file.getvalue()


def over(decode: Callable[..., torch.Tensor], images: list[bytes], mode: str) -> Callable[[], float]:
    """Decode all images."""

    def run() -> float:
        for encoded in images:
            decode(encoded, mode=mode)
        return len(images)

    return run


def main() -> None:
    """Compare, measure and print."""
    options = arguments(__doc__, rounds=7)
    if importlib.util.find_spec("torchcodec") is None:
        print("TorchCodec is not installed: pip install torchcodec")
        return
    from torchcodec.decoders import decode_image

    torch.set_num_threads(1)
    originals = [path.read_bytes() for path in jpegs(images_folder(options.images))]
    print(f"{len(originals)} images; {machine()}; {versions('penstock-data', 'torch', 'torchcodec', 'Pillow')}.")
    for kind, modes in KINDS.items():
        images = originals if kind == "JPEG" else [saved(encoded, kind) for encoded in originals[:100]]
        for mode in modes:
            if not all(torch.equal(decoders.decode_image(e, mode=mode), decode_image(e, mode=mode)) for e in images):
                raise SystemExit(f"{kind}, {mode}: tensors differ")
            candidates = {
                "TorchCodec": over(decode_image, images, mode),
                "penstock.torch.decoders": over(decoders.decode_image, images, mode),
            }
            print(f"\n### {kind}, {mode}, one thread\n\nNo value differs.\n")
            print(table(in_turns(candidates, rounds=options.rounds, unit="images/s"), against="TorchCodec"))


if __name__ == "__main__":
    main()
