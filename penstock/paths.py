"""Paths and sizes that people give: endings of images, URLs of remote places, which are refused, numbers of bytes."""

from __future__ import annotations

import os
import re
from typing import Final

from penstock.errors import ArgumentError

__all__ = ["IMAGE_SUFFIXES", "UNREAD_SUFFIXES", "parse_size", "refuse_remote"]

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

_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_size(given: object, name: str) -> int:
    """Bytes of ``"200GB"``, ``"500 MB"`` or a number; ``name`` is that of the argument.

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
