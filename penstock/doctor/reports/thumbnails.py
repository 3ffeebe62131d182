"""Small pictures of the slowest samples, for the HTML page.

The user's dataset is asked once more, in a forked child process that is killed after some seconds: a sample that takes
long, prints, or crashes the process does no harm, and the state of the script's dataset stays as it is.

::

    child   dataset[index] ─> first image in the sample ─> JPEG ── index, length, bytes ──> pipe ──> parent
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.doctor.trials.forked_child import collect_from_child

__all__ = ["find_image", "make_thumbnails"]

_HEAD: Final = struct.Struct("<qI")
_MOST_BYTES: Final = 65_536
_LEAST_SIDE: Final = 8
_NAMES: Final = ("image", "img", "pixel_values", "images", "x")
"""Under which samples that are dicts, and objects, have their image."""
_DEPTH: Final = 3


def make_thumbnails(
    dataset: Any, indices: Iterable[int], *, side: int = 160, budget_s: float = 5.0
) -> dict[int, bytes]:
    """Make small JPEG files of samples.

    Parameters
    ----------
    dataset : dataset
        With ``__getitem__``. It is called in a child process only.
    indices : iterable of int
        Of the samples; those that raise, or hold no image, are left out.
    side : int
        Largest width and height in pixels.
    budget_s : float
        Seconds after which the rest is left out.

    Returns
    -------
    dict of int to bytes
        By index. Empty where no process can be forked, or where the dataset uses a library that does not work in a
        forked child.
    """
    wanted = [int(index) for index in indices if index >= 0]
    if not wanted or not hasattr(type(dataset), "__getitem__"):
        return {}

    def send_pictures(send: Callable[[bytes], None]) -> None:
        for index in wanted:
            if picture := _picture(dataset, index, side):
                send(_HEAD.pack(index, len(picture)) + picture)

    return _read_pictures(collect_from_child(send_pictures, budget_s), set(wanted))


def find_image(sample: object) -> Any:
    """The first image in a sample, as a PIL image or an array; None if there is none."""
    return _find_image(sample, _DEPTH)


def _picture(dataset: Any, index: int, side: int) -> bytes:
    try:
        image = find_image(dataset[index])
        return b"" if image is None else _encode(image, side)
    except Exception:  # noqa: BLE001  # the user's code may raise anything; a picture is not worth an error
        return b""


def _read_pictures(content: bytes, wanted: set[int]) -> dict[int, bytes]:
    """The pictures that are whole in what the child has sent."""
    pictures: dict[int, bytes] = {}
    at = 0
    while at + _HEAD.size <= len(content):
        index, length = _HEAD.unpack_from(content, at)
        at += _HEAD.size + length
        if at <= len(content) and index in wanted:
            pictures[index] = content[at - length : at]
    return pictures


def _find_image(value: Any, depth: int) -> Any:
    if callable(getattr(value, "thumbnail", None)) and callable(getattr(value, "convert", None)):
        return value  # a PIL image
    array = _as_array(value)
    if array is not None:
        return array if _has_image_shape(array) else None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _open_image(bytes(value))
    if depth == 0 or isinstance(value, str):
        return None
    for each in _list_parts(value):
        found = _find_image(each, depth - 1)
        if found is not None:
            return found
    return None


def _list_parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return [*(value[name] for name in _NAMES if name in value), *value.values()]
    if isinstance(value, (tuple, list)):
        return value
    return [getattr(value, name) for name in _NAMES if hasattr(value, name)]


def _as_array(value: Any) -> npt.NDArray[Any] | None:
    if isinstance(value, np.ndarray):
        return value
    if all(hasattr(value, name) for name in ("detach", "cpu", "numpy")):  # a tensor
        tensor = value.detach().cpu()
        return np.asarray((tensor.float() if tensor.is_floating_point() else tensor).numpy())
    return None


def _has_image_shape(array: npt.NDArray[Any]) -> bool:
    shape = array.shape[-3:]
    if array.ndim not in {2, 3, 4} or array.dtype.kind not in "buif" or not array.size:
        return False
    sides = shape if len(shape) == 2 else shape[:2] if shape[2] in {1, 3, 4} else shape[1:]
    channels = shape[2] if len(shape) == 3 and shape[2] in {1, 3, 4} else shape[0] if len(shape) == 3 else 1
    return channels in {1, 3, 4} and min(sides) >= _LEAST_SIDE


def _open_image(encoded: bytes) -> Any:
    from PIL import Image

    try:
        return Image.open(io.BytesIO(encoded))
    except OSError:
        return None


def _encode(image: Any, side: int) -> bytes:
    from PIL import Image

    picture = Image.fromarray(_to_pixels(image)) if isinstance(image, np.ndarray) else image
    picture = picture.convert("RGB")
    picture.thumbnail((side, side))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    encoded = buffer.getvalue()
    return encoded if len(encoded) <= _MOST_BYTES else b""


def _to_pixels(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Grey or RGB pixels of an array of any layout; other than uint8 it is stretched from its least to its greatest."""
    if array.ndim == 4:
        array = array[0]
    if array.ndim == 3 and array.shape[2] not in {1, 3, 4}:
        array = array.transpose(1, 2, 0)
    if array.ndim == 3:
        array = array[..., 0] if array.shape[2] == 1 else array[..., :3]
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    values = np.nan_to_num(array.astype(np.float64), posinf=0, neginf=0)
    low, high = float(values.min()), float(values.max())
    stretched: npt.NDArray[np.uint8] = ((values - low) * (255 / (high - low or 1))).round().astype(np.uint8)
    return stretched
