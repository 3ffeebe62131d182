"""The names of the files of a pack, and how an LMDB file is told from others."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.stores.common.regular_file import has_magic

__all__ = ["FILE", "HASHES", "LOCK", "MAGIC", "looks_like_lmdb"]

FILE: Final = "data.mdb"
LOCK: Final = "pack.lock"
"""The lock file in the folder of an unfinished pack; it contains the text of the origin."""
HASHES: Final = "pages.xxh3"
"""The hashes of the pages of a finished pack."""
MAGIC: Final = 0xBEEFC0DE
"""The number in the first bytes of a meta page, after the header of the page."""
_MAGIC_OFFSET: Final = 16


def looks_like_lmdb(path: str | Path) -> bool:
    """Whether the file begins with an LMDB meta page."""
    return has_magic(path, MAGIC.to_bytes(4, "little"), (_MAGIC_OFFSET,))
