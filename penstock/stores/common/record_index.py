"""Where each record of a container lies that has no index of its own: found once, and kept in a file beside it.

::

    train.tar ──scan──> arrays by name (offsets, lengths, labels, ...), keys ──> train.tar.index.npz
                                                                                    └ used while sizes and times of
                                                                                      change of the files are the same

Stores of tar, RecordIO and TFRecord files use it. The file is only a cache: where it cannot be written beside the
container, it is kept in the user's cache folder; where that fails too, the container is scanned each time it is opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from penstock.sample import Array
from penstock.stores.common.mirrors import find_mirror, read_mended
from penstock.stores.common.regular_file import open_file, replacing_file
from penstock.stores.kinds import INDEX_FILE
from penstock.stores.location import Location, cache_folder

__all__ = ["load_or_scan"]

T_index = TypeVar("T_index")
_logger = logging.getLogger(__name__)

_FILES: Final = "files"  # the name under which the digest of the container is stored
_CONTENT: Final = "content"  # the same of its fingerprint


def load_or_scan(
    location: Location,
    digest: str,
    fingerprint: Callable[[], str],
    scan: Callable[[], Mapping[str, Array]],
    parse: Callable[[Mapping[str, Array]], T_index],
) -> T_index:
    """Return the index in the file beside the container, or of what ``scan`` returns, which is then kept.

    Parameters
    ----------
    location : Location
        The container.
    digest : str
        Of the names, sizes and times of change of its files, and of the version of what ``scan`` returns.
    fingerprint : callable
        As ``digest``, but the same for a copy of the container. By it, the index beside a container in object storage
        is known to be that of its files, which was made where they were written.
    scan : callable
        Reads the container; returns arrays by name, without objects. Names of records are one uint8 array, the
        ``joined`` of a :class:`~penstock.stores.common.keys.KeyList`.
    parse : callable
        Makes the index of these arrays. If it raises an error for those of the file, the container is scanned.
    """
    beside = location.sidecar(INDEX_FILE)
    name = hashlib.blake2b(os.fsencode(beside), digest_size=16).hexdigest()
    places = [beside, cache_folder() / "indexes" / f"{name}.npz"]
    is_copied = location.remote is not None
    for path in places:
        arrays = _load(path, digest, fingerprint if is_copied else None)
        if arrays is not None:
            with contextlib.suppress(ValueError, KeyError, IndexError, TypeError, AttributeError):
                return parse(arrays)
    found = scan()
    texts = {_FILES: digest, _CONTENT: fingerprint()}
    places = [path for path in places if find_mirror(path) is None]
    any(_save(path, texts, found) for path in places)  # the first one that can be written
    return parse(found)


def _load(path: Path, digest: str, fingerprint: Callable[[], str] | None) -> dict[str, Array] | None:
    damage = (ValueError, KeyError, EOFError, zipfile.BadZipFile, MemoryError)

    def load() -> dict[str, Array]:
        with open_file(path) as file, np.load(file, allow_pickle=False) as archive:
            is_copy = fingerprint is not None and _CONTENT in archive and str(archive[_CONTENT]) == fingerprint()
            if str(archive[_FILES]) != digest and not is_copy:
                raise ValueError("it is that of other files")
            return {name: archive[name] for name in archive.files if name not in {_FILES, _CONTENT}}

    try:
        return read_mended(load, damage)
    except (OSError, *damage):
        return None  # no file, or a damaged one


def _save(path: Path, texts: Mapping[str, str], arrays: Mapping[str, Array]) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing_file(path) as file:
            np.savez(file, allow_pickle=False, **{name: np.array(text) for name, text in texts.items()}, **arrays)
    except OSError as error:
        _logger.debug("the index %s is not kept: %s", path, error)
        return False
    return True
