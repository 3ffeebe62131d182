"""Whether a kind of store may be at a path, by a few bytes and names, without the module of the kind.

Registered beside the kinds in :mod:`penstock.stores`. False means that the ``recognises`` of the kind, which decides,
would be False, too, so that the kind is not imported. The conformance suite compares each with ``recognises``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from penstock.stores.common.lmdb.pages import FILE, HASHES, LOCK, looks_like_lmdb
from penstock.stores.common.regular_file import has_magic
from penstock.stores.writing import MANIFEST, UNFINISHED

__all__ = [
    "MANIFEST_MAGIC",
    "may_be_arrow",
    "may_be_file",
    "may_be_folder",
    "may_be_lance",
    "may_be_layout",
    "may_be_pack",
    "may_be_recordio",
    "may_be_server",
    "may_be_sharded",
]

MANIFEST_MAGIC: Final = b'{"format": "penstock sharded pack"'
"""The first bytes of the manifest of a sharded pack."""
_ARROW_NAMES: Final = ("state.json", "dataset_dict.json")
_LANCE_NAMES: Final = ("_versions",)
_PACK_NAMES: Final = (FILE, LOCK, HASHES)
_RECORDIO_MAGIC: Final = bytes.fromhex("0a23d7ce")


may_be_file, may_be_folder = os.path.isfile, os.path.isdir


def _has_any(path: str, names: Sequence[str]) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in names)  # noqa: PTH118  # names of a text


def may_be_pack(path: str) -> bool:
    """Whether it has the names of a pack's files, or is an LMDB file."""
    return _has_any(path, _PACK_NAMES) or looks_like_lmdb(path)


def may_be_sharded(path: str) -> bool:
    """Whether it has the manifest of a sharded pack, or the files of one that is being written."""
    if has_magic(os.path.join(path, MANIFEST), MANIFEST_MAGIC):  # noqa: PTH118  # names of a text
        return True
    return _has_any(path, (LOCK,)) and _has_any(path, (UNFINISHED,))


def may_be_layout(path: str) -> bool:
    """Whether it is an LMDB environment without hashes of pages, which every finished pack has."""
    file = os.path.join(path, FILE) if os.path.isdir(path) else path  # noqa: PTH112, PTH118  # names of a text
    return looks_like_lmdb(file) and not _has_any(path, (HASHES,))


def may_be_recordio(path: str) -> bool:
    """Whether it begins as RecordIO files do, or has the ending of their indices."""
    return path.endswith(".idx") or has_magic(path, _RECORDIO_MAGIC)


def may_be_arrow(path: str) -> bool:
    """Whether it is a file, or a folder of ``datasets``."""
    return os.path.isfile(path) or _has_any(path, _ARROW_NAMES)  # noqa: PTH113  # of a text


def may_be_lance(path: str) -> bool:
    """Whether it has the folder of a Lance dataset's versions."""
    return _has_any(path, _LANCE_NAMES)


def may_be_server(path: str) -> bool:  # noqa: ARG001  # as the others are called
    """False: no path is a database on a server."""
    return False
