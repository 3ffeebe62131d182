"""Code that reads images as scripts write it: what is recognised, and what is not; see test_recognise_reading.py.

The lines are those of scripts, so cv2 and torchcodec are imported only where they are installed.
"""

# ruff: noqa: PTH123, RET504  # as scripts write it
from __future__ import annotations

import contextlib
import functools
import importlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision import io as vision_io
from torchvision.datasets.folder import pil_loader
from torchvision.io import ImageReadMode, decode_image, read_image

cv2: Any = None
decoders: Any = None
with contextlib.suppress(ImportError):
    cv2 = importlib.import_module("cv2")
with contextlib.suppress(ImportError, RuntimeError):  # RuntimeError: FFmpeg is not installed
    decoders = importlib.import_module("torchcodec.decoders")


def open_and_convert(path: str | Path) -> Any:
    """torchvision's own way."""
    with open(path, "rb") as file:
        picture = Image.open(file)
        return picture.convert("RGB")


def open_by_path(path: str) -> Any:
    """Pillow, in one expression."""
    return Image.open(path).convert("RGB")


def decode_by_torchvision(path: str) -> Any:
    """torchvision's decoder, of a module, with a number of its enumeration."""
    return vision_io.decode_image(path, ImageReadMode.RGB)


def read_by_torchvision(path: str) -> Any:
    """torchvision's other name."""
    image = read_image(str(path), mode=ImageReadMode.RGB)
    return image


def decode_by_torchcodec(path: str) -> Any:
    """TorchCodec, whose default is RGB."""
    return decoders.decode_image(path)


def read_and_convert(path: str) -> Any:
    """OpenCV, with the usual check."""
    image = cv2.imread(path)
    if image is None:
        raise FileNotFoundError(path)
    image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    return image


def read_rgb(path: str) -> Any:
    """OpenCV 4.10 and newer converts by itself."""
    return cv2.imread(path, flags=cv2.IMREAD_COLOR_RGB)


def read_as_picture(path: str) -> Any:
    """OpenCV, for transforms that take pictures."""
    return Image.fromarray(cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB))


def read_bytes(path: str) -> Any:
    """Pillow, of bytes."""
    return Image.open(io.BytesIO(Path(path).read_bytes())).convert("RGB")


def decode_bytes(path: str) -> Any:
    """torchvision, of the tensor that it reads."""
    return decode_image(vision_io.read_file(path), mode="RGB")


def decode_by_opencv(path: str) -> Any:
    """OpenCV, of an array."""
    encoded = np.fromfile(path, np.uint8)
    return cv2.cvtColor(cv2.imdecode(encoded, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


READERS: dict[str, Any] = {
    "Pillow, bytes": read_bytes,
    "torchvision, bytes": decode_bytes,
    "Pillow": open_by_path,
    "Pillow, a file": open_and_convert,
    "Pillow, a lambda": lambda path: Image.open(path).convert("RGB"),
    "Pillow, torchvision's loader": pil_loader,
    "torchvision": decode_by_torchvision,
    "torchvision, partial": functools.partial(decode_image, mode="RGB"),
    "torchvision, read_image": read_by_torchvision,
}
if cv2 is not None:
    READERS |= {
        "OpenCV": read_and_convert,
        "OpenCV, bytes": decode_by_opencv,
        "OpenCV, RGB": read_rgb,
        "OpenCV, a picture": read_as_picture,
    }
if decoders is not None:
    READERS |= {"TorchCodec": decoders.decode_image, "TorchCodec, a function": decode_by_torchcodec}


class Photos(Dataset[Any]):
    """A user's dataset with a list of paths."""

    def __init__(self, samples: list[tuple[str, int]], transform: Any) -> None:
        self.samples, self.transform = samples, transform
        self.target_transform: Any = None

    def __len__(self) -> int:
        return len(self.samples)


class InOnePlace(Photos):
    """All in ``__getitem__``, with conditions on attributes."""

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        image = Image.open(path).convert("RGB")
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform:
            label = self.target_transform(label)
        return image, label


class ByMethod(Photos):
    """A method reads, and a function of the module, and the target is NumPy's."""

    def load(self, name: str) -> Any:
        """The image."""
        return open_and_convert(Path(name).parent / Path(name).name)

    def __getitem__(self, index: int) -> Any:
        image = self.load(self.samples[index][0])
        image = self.transform(image)
        return image, np.int64(self.samples[index][1])


class OpenCvPhotos(Photos):
    """OpenCV in ``__getitem__``."""

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        image = cv2.imread(path)
        if image is None:
            raise ValueError(f"cannot read {path}")
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        return self.transform(image), label


class TorchvisionPhotos(Photos):
    """torchvision's decoder in ``__getitem__``."""

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        return self.transform(decode_image(path, mode="RGB")), label


class TorchCodecPhotos(Photos):
    """TorchCodec's decoder in ``__getitem__``."""

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        return self.transform(decoders.decode_image(path)), label


# what is not recognised


def keep_channels(path: str) -> Any:
    """A gray file stays gray."""
    return Image.open(path)


def keep_channels_too(path: str) -> Any:
    """The same of torchvision, whose default is UNCHANGED."""
    return decode_image(path)


def keep_blue_first(path: str) -> Any:
    """OpenCV's order."""
    return cv2.imread(path)


def read_deep(path: str) -> Any:
    """Other channels and depths."""
    return cv2.imread(path, cv2.IMREAD_UNCHANGED)


def turn(path: str) -> Any:
    """A method of the image."""
    return Image.open(path).convert("RGB").rotate(90)


def scale(path: str) -> Any:
    """Arithmetic with the image."""
    image = decode_image(path, mode="RGB")
    return image / 255


def retry(path: str) -> Any:
    """A loop."""
    for _ in range(3):
        image = Image.open(path).convert("RGB")
    return image  # type: ignore[possibly-undefined]


def read_array(path: str) -> Any:
    """No image."""
    return torch.from_numpy(np.load(path))


@functools.lru_cache
def cached(path: str) -> Any:
    """A decorated function."""
    return Image.open(path).convert("RGB")


class TakesTheNext(Photos):
    """Another image in the place of one that is damaged, which a path does not tell."""

    def __getitem__(self, index: int) -> Any:
        while True:
            try:
                return self.transform(Image.open(self.samples[index][0]).convert("RGB")), self.samples[index][1]
            except OSError:
                index += 1


class SizeToo(Photos):
    """The size of the image is asked for."""

    def __getitem__(self, index: int) -> Any:
        path, _ = self.samples[index]
        image = Image.open(path).convert("RGB")
        return self.transform(image), image.size[0]


class ThreeValues(Photos):
    """More than a target."""

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        return self.transform(Image.open(path).convert("RGB")), label, path


class Alone(Photos):
    """No target."""

    def __getitem__(self, index: int) -> Any:
        return self.transform(Image.open(self.samples[index][0]).convert("RGB"))
