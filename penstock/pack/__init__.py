"""Packs sources into stores, makes their seek tables, and verifies stores against their sources."""

from __future__ import annotations

from penstock.pack.packing import PackReport, pack
from penstock.pack.run import PackProgress
from penstock.pack.seek_tables import IndexReport, index
from penstock.pack.verifying import VerifyReport, verify

__all__ = ["IndexReport", "PackProgress", "PackReport", "VerifyReport", "index", "pack", "verify"]
