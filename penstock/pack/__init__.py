"""Packs sources into stores, converts and copies stores, merges packs, makes their seek tables, and verifies them.

Where to find what:

- packing in parallel: ``packing.py``, ``pipeline/``; resume after a kill: ``penstock/stores/common/journal.py``
- what may be packed: ``sources/``
- what ``resize`` makes of images: ``resize/resizing.py``; which fields follow: ``resize/fields.py``
- how a store is converted, and the proof: ``conversion/run.py``, ``conversion/comparison.py``
- what has no place in the format of a conversion: ``penstock/stores/joined.py``
- how packs that several machines wrote are merged: ``merging.py``
- how a store is written to object storage: ``staging.py``, ``copying.py``
- how boxes follow pictures that are turned upright: ``upright_fields.py``
- seek tables: ``seek_tables.py``
- how a Ray cluster packs, converts and indexes: ``on_ray/``
"""

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
