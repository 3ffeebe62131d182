"""Tests for stores of your own: the suite that every kind of penstock passes; pytest runs it.

::

    your test file ──subclass──> StoreTests ──fixtures──> MadeStore ──open──> your kind, by path and by URL

``penstock`` needs pytest for this package alone, which no other one imports. See ``docs/howto/own-store.md``.
"""

from __future__ import annotations

from penstock.registry import require

require("pytest", purpose="to run the tests of stores").register_assert_rewrite(
    *(f"{__name__}.{module}" for module in ("damage", "lifetime", "made_stores", "reading"))
)

from penstock.testing.made_stores import KEYS, LABELS, MadeStore, StoreMaker, read_photos, write_photos  # noqa: E402
from penstock.testing.stores import StoreTests  # noqa: E402  # after pytest was asked to explain its assertions

__all__ = ["KEYS", "LABELS", "MadeStore", "StoreMaker", "StoreTests", "read_photos", "write_photos"]
