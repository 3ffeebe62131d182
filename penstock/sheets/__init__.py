"""Summaries of a store: its contents in numbers, a contact sheet, and samples with their annotations drawn.

Where to find what:

- contact sheets: ``sheet.py``, ``tile_sheet.py``; annotations drawn: ``annotated.py``
- what a notebook shows: ``notebook.py``; of batches: ``batch_samples.py``
"""

from __future__ import annotations

from penstock.sheets.info import SizeRange, StoreInfo, info
from penstock.sheets.sheet import contact_sheet
from penstock.sheets.showing import show
from penstock.wording import list_public_names

__all__ = ["SizeRange", "StoreInfo", "contact_sheet", "info", "show"]


def __dir__() -> list[str]:
    return list_public_names(globals(), __all__)
