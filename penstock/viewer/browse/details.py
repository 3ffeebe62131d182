"""Everything about one record, as text: its fields, the metadata and the structure of its picture, where its bytes lie.

Values come from anywhere. They are cut to a length that a page can show, and the whole length is told; no value is
interpreted as markup or code.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from penstock.errors import DecodeError
from penstock.sample import Blob, Field, Value
from penstock.stores.base import Store
from penstock.transforms.decoding.decode import MAX_PIXELS
from penstock.transforms.decoding.image_formats import quiet, sniff
from penstock.transforms.decoding.jpeg_structure import describe_jpeg, describe_seek_table
from penstock.viewer.browse.collection import Collection
from penstock.viewer.browse.layers import JsonObject
from penstock.viewer.browse.pictures import check_picture, find_size
from penstock.wording import to_plain

__all__ = ["MAX_SHOWN", "describe_record", "shorten_text"]

MAX_SHOWN: Final = 4000
"""Characters of a value that are sent."""
_MAX_NUMBERS: Final = 400
_MAX_TAGS: Final = 200
_MAPS: Final = Path("/proc/self/maps")
_MAPPED: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \d+ +(/.*)")


def describe_record(collection: Collection, index: int) -> JsonObject:
    """A record as JSON.

    It has ``index``, ``key``, ``fields`` (list of ``name``, ``kind``, ``text``, ``length``, ``is_cut``, and ``class``
    of a label), ``picture`` (size, format, bytes, ``exif``, ``jpeg``, ``range``, ``problem``), ``places`` (by field).
    """
    record, store = collection.record(index), collection.store
    schema = collection.schema.fields
    blobs = (
        name for name, field in store.schema.fields.items() if field.is_blob and record.fields.get(name) is not None
    )
    places = {name: _find_place(store, record.key, record.fields[name]) for name in blobs}
    picture = None
    if collection.image_field:
        image = record.fields[collection.image_field]
        picture = _describe_picture(image)
        if "jpeg" in picture:
            (table,) = collection.seek_tables.get([index]).entries
            picture["jpeg"]["seek_table"] = describe_seek_table(image, table)
    return {
        "index": index,
        "key": record.key,
        "fields": [_describe_field(name, field, record.fields.get(name)) for name, field in schema.items()],
        "picture": picture,
        "places": {name: place for name, place in places.items() if place is not None},
        "store": store.url,
    }


def shorten_text(text: str, limit: int = MAX_SHOWN) -> JsonObject:
    """A text of at most ``limit`` characters, the length of the whole, and whether it is cut."""
    return {"text": text[:limit], "length": len(text), "is_cut": len(text) > limit}


def _describe_field(name: str, field: Field, value: Value) -> JsonObject:
    described = {"name": name, "kind": field.kind, **_show(value)}
    if field.classes and field.kind == "label" and value is not None and 0 <= int(value) < len(field.classes):
        described["class"] = field.classes[int(value)]
    elif field.classes and isinstance(value, np.ndarray) and value.ndim == 1:
        named = dict(enumerate(field.classes))
        described["classes"] = [named.get(int(each), str(each)) for each in value[:_MAX_NUMBERS].tolist()]
    return described


def _show(value: Value) -> JsonObject:
    """Return a value as text, and its length: of a text its characters, of bytes their number, of an array its rows."""
    if value is None:
        return {"text": "", "length": 0, "is_cut": False, "is_absent": True}
    if isinstance(value, np.ndarray):
        rows = value.reshape(-1)[:_MAX_NUMBERS] if value.size > _MAX_NUMBERS else value
        shown = shorten_text(f"{value.dtype} {value.shape}" if value.ndim > 2 else json.dumps(to_plain(rows)))
        is_cut = value.ndim <= 2 and (value.size > _MAX_NUMBERS or shown["is_cut"])
        return {**shown, "length": len(value) if value.ndim else 1, "is_cut": is_cut}
    if isinstance(value, bytes | bytearray | memoryview):
        nbytes = memoryview(value).nbytes
        return {"text": bytes(value[:32]).hex(" "), "length": nbytes, "is_cut": nbytes > 32}
    if isinstance(value, Mapping | list | tuple):
        return {**shorten_text(json.dumps(to_plain(value), ensure_ascii=False)), "length": len(value)}
    return shorten_text(str(value))


def _describe_picture(image: Blob) -> JsonObject:
    if image is None or len(image) == 0:
        return {"problem": "the record has no image"}
    if isinstance(image, np.ndarray):
        height, width, channels = image.shape
        facts = {"format": "pixels", "nbytes": image.nbytes, "width": width, "height": height, "channels": channels}
        return {**facts, "dtype": str(image.dtype), "range": check_picture(image)[1]}
    encoded = bytes(image)
    described: JsonObject = {"nbytes": len(encoded)}
    try:
        described["format"] = sniff(encoded[:64])
        described["width"], described["height"] = find_size(encoded)
    except DecodeError as error:
        return {**described, "problem": str(error)}
    described["problem"], described["range"] = check_picture(encoded)
    described["exif"] = _read_exif(encoded)
    if described["format"] == "JPEG":
        described["jpeg"] = to_plain(describe_jpeg(encoded))
    return described


def _read_exif(encoded: bytes) -> list[JsonObject]:
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
    found = []
    for tag in [each for each in tags if each not in set(ExifTags.IFD)][:_MAX_TAGS]:
        text = tags[tag][:64].hex(" ") if isinstance(tags[tag], bytes) else str(tags[tag])
        found.append({"name": ExifTags.TAGS.get(tag, f"tag {tag}"), **shorten_text(text, 500)})
    return found


def _find_place(store: Store, key: str, value: Blob) -> JsonObject | None:
    """The file in which a value lies, its offset there and its length: of a file of a folder, and of mapped files.

    None where that is not known: it is decompressed, copied, or on a server; or the system has no table of its maps.
    """
    if store.kind == "files" and store.location.is_local and store.location.remote is None:
        return {"path": str(Path(store.location.path, key)), "offset": 0, "nbytes": memoryview(value).nbytes}
    if isinstance(value, bytes):
        return None
    try:
        array = value if isinstance(value, np.ndarray) else np.frombuffer(value, np.uint8)
        lines = _MAPS.read_text("utf-8", "surrogateescape").splitlines()
    except (OSError, ValueError):
        return None
    address = array.ctypes.data
    for first, last, offset, path in (found.groups() for found in map(_MAPPED.match, lines) if found is not None):
        if int(first, 16) <= address < int(last, 16):
            return {"path": path, "offset": address - int(first, 16) + int(offset, 16), "nbytes": array.nbytes}
    return None
