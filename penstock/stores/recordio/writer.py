"""Writes RecordIO files: ``.rec`` and ``.idx``, as MXNet's ``MXIndexedRecordIO`` and ``pack`` write them.

Called through :meth:`RecordioStore.writer <penstock.stores.recordio.store.RecordioStore.writer>`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

import numpy as np

from penstock.errors import ArgumentError, PackError
from penstock.sample import Field, Schema
from penstock.stores.common.file_writer import FileWriter
from penstock.stores.location import Location
from penstock.stores.recordio.format import HEADER_NBYTES, MAX_RECORD_NBYTES, encode_record, find_magic

__all__ = ["PreparedImage", "RecordioWriter", "find_storable"]

_HEADER: Final = struct.Struct("<IfQQ")
_MAX_WHOLE: Final = 1 << 24  # float32 holds every whole number up to here
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_DERIVED: Final = ("width", "height")  # they are in the image
_LABEL_ARRAY: Final = re.compile(r"float32\[(\*|[1-9][0-9]*)\]")


def find_storable(schema: Schema) -> Schema:
    """The fields that RecordIO has a place for, as they are read back.

    Raises ArgumentError if there is no image.
    """
    blob = next((name for name in ("image", "bytes") if name in schema and schema[name].kind == name), None)
    if blob is None:
        kinds = ", ".join(f"{name} ({field.kind})" for name, field in schema.fields.items())
        raise ArgumentError(f"a RecordIO file must have a field 'image' of encoded images, got {kinds:.200}")
    fields: dict[str, Field] = {blob: Field(blob)}
    for name, field in schema.fields.items():
        is_number = name == "label" and field.kind in {"label", "float"}
        is_array = name == "label" and _LABEL_ARRAY.fullmatch(field.kind) is not None
        if is_number or is_array or (name in {"id", "id2"} and field.kind == "int"):
            fields[name] = Field(field.kind)
    return Schema({name: fields[name] for name in schema.fields if name in fields})


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """A record without its number: key, flag and number of the label, ids, and what follows the header."""

    key: str
    flag: int
    number: float
    id: int | None
    id2: int
    rest: bytes | memoryview
    magics: list[int]
    nbytes: int


class RecordioWriter(FileWriter[PreparedImage]):
    """Writes a ``.rec`` file and its ``.idx`` file.

    Parameters
    ----------
    location : Location
        The ``.rec`` file.
    schema : Schema
        What :func:`find_storable` returns for it is written; the other fields must be ``width`` and ``height``, which
        are those of the image.
    source : str
        As for :class:`FileWriter`.
    overwrite : bool
        As for :class:`FileWriter`.

    Raises
    ------
    ArgumentError
        If the format has no place for a field.

    Notes
    -----
    The keys of the records are kept if they are numbers, as the keys that MXNet reads are; else a record's key is its
    number. Where there is no field ``id``, the id in the header is the key.
    """

    endings: ClassVar[tuple[str, ...]] = ("", ".idx")

    def __init__(self, location: Location, schema: Schema, source: str, *, overwrite: bool = False) -> None:
        written = find_storable(schema)
        if others := [name for name in schema.fields if name not in written and name not in _DERIVED]:
            raise ArgumentError(
                f"a RecordIO file has no place for the fields {', '.join(others)}; it stores image, label (a number or "
                "float32 numbers), id and id2"
            )
        self._blob = next(name for name in written.fields if name in {"image", "bytes"})
        self._written = written
        super().__init__(location, schema, source, overwrite=overwrite)

    def prepare(self, key: str, fields: Mapping[str, object]) -> PreparedImage:
        """Encode a record, but for its number; thread-safe."""
        try:
            flag, number, head = self._encode_label(fields.get("label"))
            identifier, second = (_check_id(name, cast("int | None", fields.get(name))) for name in ("id", "id2"))
        except PackError as error:
            error.locate(key=key)
            raise
        blob = fields[self._blob]
        image = b"" if blob is None else cast("bytes | memoryview", blob)
        rest = b"".join((head, image)) if head else image
        if HEADER_NBYTES + len(rest) > MAX_RECORD_NBYTES:
            raise PackError(f"a record must have at most {MAX_RECORD_NBYTES} bytes, got {len(rest)}", key=key)
        return PreparedImage(key, flag, number, identifier, second or 0, rest, find_magic(rest), len(rest) - len(head))

    def write_record(self, prepared: PreparedImage) -> int:
        """Append the frames of a record, and its line of the index."""
        records, lines = self.files
        key = self._choose_key(prepared.key)
        identifier = int(key) if prepared.id is None else prepared.id
        head = _HEADER.pack(prepared.flag, prepared.number, identifier, prepared.id2)
        lines.write(f"{key}\t{records.tell()}\n".encode())
        for piece in encode_record(head, prepared.rest, prepared.magics):
            records.write(piece)
        return prepared.nbytes

    def _choose_key(self, key: str) -> str:
        """The key in the index: that of the record, if the first one was a number."""
        is_number = _NUMBER.fullmatch(key) is not None
        if self.state.setdefault("keeps_keys", is_number) and not is_number:
            raise PackError("the keys of all records must be numbers, as the first one's is", key=key)
        return key if self.state["keeps_keys"] else str(self.records)

    def _encode_label(self, label: Any) -> tuple[int, float, bytes]:
        """Flag, number, and bytes behind the header."""
        if label is None or "label" not in self._written:
            return 0, float("nan"), b""
        kind = self._written["label"]
        if kind.kind == "label":
            if abs(int(label)) > _MAX_WHOLE:
                raise PackError(f"a label must be at most {_MAX_WHOLE}, which float32 holds exactly, got {label}")
            return 0, float(label), b""
        if kind.kind == "float":
            number = float(np.float32(label))
            if number != label:
                raise PackError(f"a label must be a float32 number, got {label!r}; store it as an array of float32")
            return 0, number, b""
        numbers = np.ascontiguousarray(label, "<f4")
        if numbers.ndim != 1 or not numbers.size:
            raise PackError(f"an array of labels must have one axis and a number, got shape {numbers.shape}")
        return numbers.size, 0.0, numbers.tobytes()


def _check_id(name: str, value: int | None) -> int | None:
    """An id as a number without a sign."""
    if value is None:
        return None
    if not -(1 << 63) <= int(value) < 1 << 64:
        raise PackError(f"field {name!r} must be a number of 64 bits, got {value!r:.80}")
    return int(value) % (1 << 64)
