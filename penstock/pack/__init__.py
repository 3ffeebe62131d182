"""Packs sources into stores, converts and copies stores, merges packs, makes their seek tables, and verifies them."""

from __future__ import annotations

from penstock.pack.conversion.convert import convert
from penstock.pack.conversion.report import ConvertReport
from penstock.pack.copying import CopyReport, copy
from penstock.pack.merging import merge
from penstock.pack.packing import pack
from penstock.pack.pipeline.pack_source import PackReport
from penstock.pack.pipeline.run import PackProgress
from penstock.pack.seek_tables import IndexReport, index
from penstock.pack.verifying import VerifyReport, verify

__all__ = [
    "ConvertReport",
    "CopyReport",
    "IndexReport",
    "PackProgress",
    "PackReport",
    "VerifyReport",
    "convert",
    "copy",
    "index",
    "merge",
    "pack",
    "verify",
]
