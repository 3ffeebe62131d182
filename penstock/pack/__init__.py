"""Packing: sources into stores, and the proof that what is stored is what the source holds."""

from __future__ import annotations

from penstock.pack.indexing import IndexReport, index
from penstock.pack.job import PackProgress
from penstock.pack.packing import PackReport, pack
from penstock.pack.verifying import VerifyReport, verify

__all__ = ["IndexReport", "PackProgress", "PackReport", "VerifyReport", "index", "pack", "verify"]
