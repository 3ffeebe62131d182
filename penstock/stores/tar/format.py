"""The format of tar files, as far as archives of records need it: headers read, headers written, names split.

::

    header │ data, zeros up to a multiple of 512 │ header │ data ... │ two blocks of zeros
    └ name, size, checksum, type: 512 bytes; a long name stands in a member of its own before it (GNU "L", pax "x", "g")

Names are split into key and suffix, and members left out, as webdataset does.
ustar, pax (POSIX.1-2001) and GNU headers are understood. No length from a file is used before it is compared with what
the file has. Called by the stores and streams of tar files, and their writer.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

__all__ = ["BLOCK_NBYTES", "Member", "MemberScan", "encode_header", "is_header", "is_metadata", "split_name"]

BLOCK_NBYTES: Final = 512
_ZEROS: Final = bytes(BLOCK_NBYTES)
_SPACES: Final = b" " * 8
_ADLER: Final = 65521
_MAX_EXTENSION_NBYTES: Final = 1 << 20  # a long name, or pax records
_MAX_NAME_NBYTES: Final = 1 << 16
_FILE, _FOLDER, _SPARSE = b"05S"
_LONG_NAME, _LONG_LINK, _GLOBAL = b"LKg"
_EXTENSIONS: Final = frozenset(b"LKxXg")
_OTHER_FILES: Final = frozenset(b"\x007")  # of old archives, and contiguous ones
_WITHOUT_DATA: Final = frozenset(b"123456")  # links, devices, folders, FIFOs: no data follow, whatever the size says
_PAX_RECORD: Final = re.compile(rb"([0-9]{1,7}) ([^=\n]+)=")


class Member(NamedTuple):
    """A file in an archive: name, where its bytes are, and why it cannot be read ("" for regular files).

    ``content``: its bytes, where they were read with the headers.
    """

    name: bytes
    offset: int
    nbytes: int
    problem: str
    content: bytes = b""


class MemberScan:
    """The files of an archive, in order; folders are left out.

    ``read``: called with an offset and a number of bytes, in ascending order; returns fewer bytes at the end only.
    ``nbytes``: bytes of the archive, where they are known. While iterating, raises ValueError if a header is damaged,
    or declares more bytes than the archive has.
    """

    def __init__(self, read: Callable[[int, int], bytes | memoryview], nbytes: int | None = None) -> None:
        self._read, self._nbytes = read, nbytes
        self.end = 0
        """Where the next header would be: behind the last member, or the block of zeros."""
        self.has_end = False
        """Whether a block of zeros ends the archive, as it should."""
        self._global: dict[bytes, bytes] = {}

    def __iter__(self) -> Iterator[Member]:
        read = self._read
        at = 0
        extended: dict[bytes, bytes] = {}
        while len(block := bytes(read(at, BLOCK_NBYTES))) == BLOCK_NBYTES:
            if not block[0] and block == _ZEROS:
                self.has_end = True
                break
            _check_sum(block, at)
            kind = block[156]
            at += BLOCK_NBYTES
            if kind in _EXTENSIONS:
                size = _parse_number(block[124:136], at)
                self._note_extension(kind, self._read_extension(at, size), extended)
                at = _round_up(at + size)
                continue
            member, at = self._make_member(block, at, extended)
            extended.clear()
            if member is not None:
                yield member
        if block and len(block) < BLOCK_NBYTES:
            raise ValueError(f"the archive ends inside the header at byte {at}; it was truncated")
        if not block and not at:
            raise ValueError("the file is empty")
        if extended:
            raise ValueError(f"the archive ends behind a long name, at byte {at}; it was truncated")
        self.end = at + len(block)

    def _make_member(self, block: bytes, at: int, extended: dict[bytes, bytes]) -> tuple[Member | None, int]:
        """The member of a header, unless it is a folder; and where the next header is. ``at``: behind this header."""
        kind = block[156]
        name = block[:100].partition(b"\0")[0]
        size = _parse_number(block[124:136], at)
        is_folder = kind == _FOLDER or (not kind and name.endswith(b"/"))
        if block[345] and kind != _SPARSE:
            name = block[345:500].partition(b"\0")[0] + b"/" + name
        problem = ""
        if kind != _FILE and kind not in _OTHER_FILES:
            if kind == _SPARSE:
                problem = "a sparse file, which cannot be read"
                at = self._skip_sparse_map(block, at)
            else:
                problem = "a link or a device" if kind in _WITHOUT_DATA else "an entry of unknown type"
        if extended or self._global:
            applied = {**self._global, **extended}
            name, size = _apply(applied, name, size, at)
            if any(key.startswith(b"GNU.sparse.") for key in extended):
                problem = "a sparse file, which cannot be read"
        if kind in _WITHOUT_DATA:
            size = 0
        if self._nbytes is not None and at + size > self._nbytes:
            raise ValueError(
                f"{_show(name)} has {size} bytes by its header, and {max(self._nbytes - at, 0)} follow; the archive "
                "was truncated, or is damaged"
            )
        if len(name) > _MAX_NAME_NBYTES or b"\0" in name:
            raise ValueError(f"{_show(name)} must have at most {_MAX_NAME_NBYTES} bytes in its name, none of them zero")
        return None if is_folder else Member(name, at, size, problem), _round_up(at + size)

    def _read_extension(self, at: int, size: int) -> bytes:
        if size > _MAX_EXTENSION_NBYTES:
            raise ValueError(f"the long name at byte {at} must have at most {_MAX_EXTENSION_NBYTES} bytes, got {size}")
        content = bytes(self._read(at, size))
        if len(content) < size:
            raise ValueError(f"the archive ends inside the long name at byte {at}; it was truncated")
        return content

    def _note_extension(self, kind: int, content: bytes, extended: dict[bytes, bytes]) -> None:
        """Keep a long name, or the records of a pax header: those that come first count."""
        if kind == _LONG_NAME:
            extended.setdefault(b"path", content.partition(b"\0")[0])
        elif kind == _GLOBAL:
            self._global.update(_parse_pax(content))
        elif kind != _LONG_LINK:
            for key, value in _parse_pax(content).items():
                extended.setdefault(key, value.rstrip(b"/") if key == b"path" else value)

    def _skip_sparse_map(self, block: bytes, at: int) -> int:
        """Return where the data of a GNU sparse file begin: behind further blocks of its map."""
        follows = block[482]
        while follows:
            more = bytes(self._read(at, BLOCK_NBYTES))
            if len(more) < BLOCK_NBYTES:
                raise ValueError(f"the archive ends inside the map of a sparse file at byte {at}; it was truncated")
            follows = more[504]
            at += BLOCK_NBYTES
        return at


def is_header(block: bytes) -> bool:
    """Return whether these bytes are the header of a file, by their checksum."""
    try:
        _check_sum(block.ljust(BLOCK_NBYTES, b"\0"), 0)
    except ValueError:
        return False
    return len(block) == BLOCK_NBYTES and any(block)


def split_name(name: bytes, *, dotted_keys: bool = False) -> tuple[bytes, bytes] | None:
    """Key and suffix of a name: it is split at the first dot of its last part; None if there is none.

    The rule is that of webdataset's pattern ``^((?:.*/|)[^.]+)[.]([^/]*)$``, for every name, in linear time.
    ``dotted_keys``: such a name is split at its last dot instead.

    Examples
    --------
    >>> split_name(b"train.v1/cat.2.seg.png"), split_name(b"train/README"), split_name(b"a/.x")
    ((b'train.v1/cat', b'2.seg.png'), None, (b'a/', b'x'))
    >>> split_name(b"2024.05.01.jpg", dotted_keys=True)
    (b'2024.05.01', b'jpg')
    """
    newline = name.find(b"\n")  # the dot of the pattern does not match it
    begin = (name.rfind(b"/") if newline < 0 else name.rfind(b"/", 0, newline)) + 1
    dot = name.find(b".", begin)
    if dot == begin:  # the last part begins with a dot: the part before it, without dots, counts
        if not begin or b"." in name[name.rfind(b"/", 0, begin - 1) + 1 : begin]:
            return None
    elif dot < 0:
        return None
    if dotted_keys:
        dot = max(dot, name.rfind(b".", dot))
    suffix = name[dot + 1 :]
    return None if b"/" in suffix else (name[:dot], suffix)


def is_metadata(name: bytes) -> bool:
    """Return whether webdataset leaves a file out by its name: ``__name__`` at the top, and all below such a folder."""
    if not name.startswith(b"__"):
        return False
    first, slash, _ = name.partition(b"/")
    if slash:
        return len(first) >= 4 and first.endswith(b"__")
    return first.endswith(b"__") or (len(first) > 4 and first.endswith(b"__\n"))


def encode_header(name: bytes, nbytes: int) -> bytes:
    """Encode the header of a file: ustar, or with a pax header before it where name or size is too long.

    Owner, group and time are 0, so that the same records give the same bytes.
    """
    member = tarfile.TarInfo(name.decode(errors="surrogateescape"))
    member.size = nbytes
    try:
        return member.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape")
    except ValueError:
        return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _check_sum(block: bytes, at: int) -> None:
    """Raise ValueError unless the checksum of a header is that of its bytes, with or without signs."""
    expected = _parse_number(block[148:156], at + BLOCK_NBYTES)
    # Adler-32 holds the sum of the bytes modulo 65521, and is 20 times as fast as sum()
    total = zlib.adler32(block[156:], zlib.adler32(_SPACES, zlib.adler32(block[:148]))) & 0xFFFF
    if total == (expected + 1) % _ADLER:
        return
    signed = sum(byte - 256 if byte > 127 else byte for byte in block[:148] + _SPACES + block[156:])
    if signed != expected:
        raise ValueError(f"there is no header of a file at byte {at}: its checksum is wrong")


def _parse_number(field: bytes, at: int) -> int:
    """Return a number in octal digits, or in base 256; ``at``: where the header ends."""
    if field[0] == 0x80:
        number = int.from_bytes(field[1:], "big")
    else:
        try:
            number = int(field.partition(b"\0")[0].strip() or b"0", 8)
        except ValueError:
            number = -1
    if number < 0:
        raise ValueError(f"the header at byte {at - BLOCK_NBYTES} has the number {field!r}")
    return number


def _parse_pax(content: bytes) -> dict[bytes, bytes]:
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(content) and content[at]:
        match = _PAX_RECORD.match(content, at)
        end = at + int(match[1]) if match is not None else 0
        if match is None or not match.end() < end <= len(content) or content[end - 1] != 0x0A:
            raise ValueError(f"an extended header is damaged: {content[at : at + 40]!r}")
        records[match[2]] = content[match.end() : end - 1]
        at = end
    return records


def _apply(records: dict[bytes, bytes], name: bytes, size: int, at: int) -> tuple[bytes, int]:
    """Name and size as extended headers give them."""
    if b"size" in records:
        digits = records[b"size"]
        if not (digits.isdigit() and len(digits) < 20):
            raise ValueError(f"the extended header before byte {at} has the size {digits[:40]!r}")
        size = int(digits)
    return records.get(b"path", name), size


def _round_up(at: int) -> int:
    return at + BLOCK_NBYTES - 1 & -BLOCK_NBYTES


def _show(name: bytes) -> str:
    return repr(name.decode(errors="backslashreplace"))[:200]
