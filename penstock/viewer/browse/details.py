"""Everything about one record, as text: its fields, the metadata and the structure of its picture, where its bytes lie.

Values come from anywhere. They are cut to a length that a page can show, and the whole length is told; no value is
interpreted as markup or code.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from penstock.errors import DecodeError
from penstock.sample import Blob, Field, Value
from penstock.transforms.decoding.decode import MAX_PIXELS
from penstock.transforms.decoding.image_formats import quiet, sniff
from penstock.transforms.decoding.jpeg_structure import describe_jpeg
from penstock.viewer.browse.collection import Collection
from penstock.viewer.browse.pictures import find_problem, find_size
from penstock.viewer.browse.places import find_place
from penstock.wording import to_plain

__all__ = ["MAX_SHOWN", "describe_record", "shorten_text"]

MAX_SHOWN: Final = 4000
"""Characters of a value that are sent."""
_MAX_NUMBERS: Final = 400
_EXIF_NBYTES: Final = 1 << 16


def describe_record(collection: Collection, index: int) -> dict[str, Any]:
    """A record as JSON.

    Returns
    -------
    dict
        ``index``, ``key``, ``fields`` (list of ``name``, ``kind``, ``text``, ``length``, ``is_cut``, and ``class`` of a
        label), ``picture`` (size, format, bytes, ``exif``, ``jpeg``, ``range``, ``problem``), ``places`` (by field).

    Raises
    ------
    StoreError
        If the record cannot be read.
    """
    record = collection.record(index)
    schema = collection.schema.fields
    places = {}
    for name, field in schema.items():
        if field.is_blob and name in collection.store.schema and record.fields.get(name) is not None:
            place = find_place(collection.store, record.key, record.fields[name])
            if place is not None:
                places[name] = to_plain(place)
    picture = None
    if collection.image_field:
        picture = _describe_picture(record.fields[collection.image_field])
    return {
        "index": index,
        "key": shorten_text(record.key)["text"],
        "fields": [_describe_field(name, field, record.fields.get(name)) for name, field in schema.items()],
        "picture": picture,
        "places": places,
        "store": collection.store.url,
    }


def shorten_text(text: str, limit: int = MAX_SHOWN) -> dict[str, Any]:
    """A text of at most ``limit`` characters, the length of the whole, and whether it is cut."""
    return {"text": text[:limit], "length": len(text), "is_cut": len(text) > limit}


def _describe_field(name: str, field: Field, value: Value) -> dict[str, Any]:
    described = {"name": name, "kind": field.kind, **_show(value)}
    if field.classes and field.kind == "label" and value is not None and 0 <= int(value) < len(field.classes):
        described["class"] = field.classes[int(value)]
    elif field.classes and isinstance(value, np.ndarray) and value.ndim == 1:
        named = dict(enumerate(field.classes))
        described["classes"] = [named.get(int(each), str(each)) for each in value[:_MAX_NUMBERS].tolist()]
    return described


def _show(value: Value) -> dict[str, Any]:
    """A value as text, and its length: of a text its characters, of bytes their number, of an array its rows."""
    if value is None:
        return {"text": "", "length": 0, "is_cut": False, "is_absent": True}
    if isinstance(value, str):
        return shorten_text(value)
    if isinstance(value, np.ndarray):
        rows = value.reshape(-1)[:_MAX_NUMBERS] if value.size > _MAX_NUMBERS else value
        text = f"{value.dtype} {value.shape}" if value.ndim > 2 else json.dumps(to_plain(rows))
        return {"text": text[:MAX_SHOWN], "length": len(value) if value.ndim else 1,
                "is_cut": value.ndim <= 2 and (value.size > _MAX_NUMBERS or len(text) > MAX_SHOWN)}  # fmt: skip
    if isinstance(value, bytes | bytearray | memoryview):
        nbytes = memoryview(value).nbytes
        return {"text": bytes(value[:32]).hex(" "), "length": nbytes, "is_cut": nbytes > 32}
    if isinstance(value, Mapping | list | tuple):
        text = json.dumps(to_plain(value), ensure_ascii=False)
        return {**shorten_text(text), "length": len(value)}
    return shorten_text(str(value))


def _describe_picture(image: Blob) -> dict[str, Any]:
    if image is None or len(image) == 0:
        return {"problem": "the record has no image"}
    if isinstance(image, np.ndarray):
        finite = image[np.isfinite(image)] if image.dtype.kind == "f" else image
        limits = [float(finite.min()), float(finite.max())] if finite.size else [0.0, 0.0]
        return {
            "format": "pixels", "nbytes": image.nbytes, "width": image.shape[1], "height": image.shape[0],
            "channels": image.shape[2], "dtype": str(image.dtype), "range": limits,
        }  # fmt: skip
    described: dict[str, Any] = {"nbytes": memoryview(image).nbytes}
    encoded = bytes(image)
    try:
        described["format"] = sniff(encoded[:64])
        described["width"], described["height"] = find_size(encoded)
    except DecodeError as error:
        return {**described, "problem": str(error)}
    described["exif"] = _read_exif(encoded)
    if described["format"] == "JPEG":
        described["jpeg"] = to_plain(describe_jpeg(encoded))
    if problem := find_problem(encoded):
        described["problem"] = problem
    return described


def _read_exif(encoded: bytes) -> list[dict[str, Any]]:
    """The Exif tags of a picture by name, as text; empty where it has none, or Pillow cannot read them."""
    from PIL import ExifTags, Image

    try:
        with quiet(), Image.open(io.BytesIO(encoded)) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                return []
            exif = opened.getexif()
            tags = {**dict(exif.items()), **exif.get_ifd(ExifTags.IFD.Exif)}
    except Exception:  # noqa: BLE001  # of the parser of a damaged header; the picture is shown without them
        return []
    pointers = {int(each) for each in ExifTags.IFD}
    found = []
    for tag, value in list(tags.items())[:200]:
        if tag in pointers:
            continue
        text = value[:64].hex(" ") if isinstance(value, bytes) else str(value)
        found.append({"name": ExifTags.TAGS.get(tag, f"tag {tag}"), **shorten_text(text, 500)})
    return found
