"""Paths and sizes that people give: endings of images, files of other systems, encodings of texts, numbers of bytes.

URLs of remote places are refused. Tables and annotations find the files that they name here.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.errors import ArgumentError

__all__ = [
    "COEFFICIENTS",
    "IMAGE_SUFFIXES",
    "MAX_PATH",
    "UNREAD_SUFFIXES",
    "FolderListings",
    "find_below",
    "find_encoding",
    "find_named_file",
    "is_file",
    "parse_size",
    "refuse_remote",
    "split_path",
]

COEFFICIENTS: Final = b"\x9bPSC"
"""The first bytes of a JPEG whose coefficients are stored without Huffman codes (``transcode="coefficients"``)."""

IMAGE_SUFFIXES: Final = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff"}
    | {".ppm", ".pgm", ".pbm", ".pnm", ".avif", ".heic", ".heif", ".hif", ".jxl"}
)
"""Endings, in lower case, of images that can be decoded, some with an extra; other files are not records."""

UNREAD_SUFFIXES: Final = frozenset(
    {".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx", ".jxr", ".tga", ".psd", ".exr"}
    | {".hdr", ".qoi", ".dds", ".pcx", ".sgi", ".pfm", ".dcm", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".raf", ".orf"}
)
"""Endings of images that cannot be decoded; such files are reported as unreadable, not ignored as a README is."""

_REMOTE: Final = re.compile(
    r"(?i)(https?|ftps?|sftp|ssh|s3a?|gs|gcs|r2|oss|oci|abfss?|azure?|az|adl|wasbs?|hdfs|webhdfs|dbfs|hf|webdavs?"
    r"|smb|lakefs|gdrive|dropbox|box|memory):/"
)
"""Those that :func:`penstock.open` reads, and others; here neither are."""

MAX_PATH: Final = 4096
"""Characters of the longest path of a file that is looked for: that of Linux."""

_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_MAX_PARTS: Final = 256
_DRIVE: Final = re.compile(r"[A-Za-z]:(?=[\\/])")

_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_size(given: object, name: str) -> int:
    """Return the number of bytes that ``"200GB"``, ``"500 MB"`` or a number is; ``name`` is that of the argument.

    Raises ArgumentError if it is none of these.
    """
    text = str(given).upper().replace(" ", "").replace("_", "").removesuffix("B")
    unit = text[-1:] if text[-1:] in _UNITS else ""
    try:
        nbytes = int(float(text.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError):
        nbytes = -1
    if nbytes < 0 or isinstance(given, bool):
        raise ArgumentError(f'{name} must be a number of bytes, or a text as "200GB", got {given!r:.50}')
    return nbytes


def refuse_remote(given: object, verb: str = "read") -> None:
    """Raise ArgumentError if a path, or one of a list of paths, is a URL of a remote place; no password is shown.

    Called before a path is made of what a person gave: a path of a URL would be shown in the next error.

    ``given``: what was given; other objects than text and paths are no URLs. ``Path`` leaves one of the two slashes.
    ``verb``: what is not done there: "read" or "written".
    """
    for each in given if isinstance(given, list | tuple) else [given]:
        found = _REMOTE.match(os.fsdecode(each)) if isinstance(each, str | bytes | os.PathLike) else None
        if found is not None:
            advice = "or the URL as a text to penstock.open" if verb == "read" else "and copy the files from it"
            raise ArgumentError(
                f"remote places are not {verb} here, got a URL that begins with {found[1]}://; give a path on this "
                f"machine, {advice}"
            )


def find_encoding(head: bytes) -> str:
    """The encoding of a text by the byte order mark at its beginning; UTF-8 without one."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file; a name that the system cannot have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long for the system
        return False


def split_path(text: str) -> list[str]:
    """Folders and name of a path of any system, without its drive, its root and parts ``.``."""
    return [part for part in _DRIVE.sub("", text, count=1).replace("\\", "/").split("/") if part not in {"", "."}]


def find_below(folder: str | Path, parts: Sequence[str]) -> Path | None:
    """Return the file at a path below a folder, also where its ending is written in the other case.

    It is None if there is none.
    """
    *_, name = parts
    base = os.path.join(folder, *parts[:-1])  # noqa: PTH118  # texts, since a table may name a million files
    found = (each for each in _spell_endings(name) if os.path.isfile(os.path.join(base, each)))  # noqa: PTH113, PTH118
    return next((Path(base, each) for each in found), None)


@functools.lru_cache(16)  # one name is looked for in several folders
def _spell_endings(name: str) -> tuple[str, ...]:
    """A name, and the same with its ending in small and in capital letters."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122  # a text
    return tuple(dict.fromkeys((name, stem + suffix.lower(), stem + suffix.upper())))


class FolderListings:
    """What lies in folders, each of which is asked once: a list may name a million files that are missing."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, bool | None] | None] = {}

    def find(self, folder: str | Path, parts: Sequence[str]) -> Path | None:
        """Find a path below ``folder`` as :func:`find_below` does, by listings that are kept."""
        if ".." in parts:
            return find_below(folder, parts)
        *below, name = parts
        place = os.fspath(folder)
        for part in below:
            kind = (entries := self._list(place)) and entries.get(part, False)
            place = os.path.join(place, part)  # noqa: PTH118  # texts
            if entries is not None and not (kind or (kind is None and os.path.isdir(place))):  # noqa: PTH112
                return None
        if (entries := self._list(place)) is None:
            return find_below(place, [name])
        for each in _spell_endings(name):
            kind = entries.get(each, True)
            if kind is False or (kind is None and os.path.isfile(os.path.join(place, each))):  # noqa: PTH113, PTH118
                return Path(place, each)
        return None

    def _list(self, folder: str) -> dict[str, bool | None] | None:
        """Return whether each entry is a folder, by name; None for a link. None if the folder must not be listed."""
        if folder not in self._held:
            try:
                with os.scandir(folder) as entries:
                    self._held[folder] = {
                        each.name: None if each.is_symlink() else each.is_dir()
                        for each in entries
                        if each.is_symlink() or each.is_dir() or each.is_file()
                    }
            except PermissionError:
                self._held[folder] = None
            except (OSError, ValueError):  # a name that the system cannot have
                self._held[folder] = {}
        return self._held[folder]


def find_named_file(folder: Path, text: str, listings: FolderListings | None = None) -> Path | None:
    """Return the file that a path of any system names below a folder; None if there is none.

    Blanks around it, separators of Windows and the case of its ending may differ. Of an absolute path, whose beginning
    is that of another machine, the longest end that is a file is taken. ``listings``: those of other files looked for.
    """
    text = text.strip()
    parts = split_path(text) if len(text) <= MAX_PATH else []
    is_absolute = text.startswith(("/", "\\")) or _DRIVE.match(text) is not None
    begins = range(max(0, len(parts) - _MAX_PARTS), len(parts)) if is_absolute else range(min(len(parts), 1))
    ends = (parts[begin:] for begin in begins)
    find = find_below if listings is None else listings.find
    return next((found for end in ends if (found := find(folder, end)) is not None), None)
