"""Looking at data: what a store holds in numbers, and a sheet of its pictures."""

from __future__ import annotations

from penstock.view.info import SizeRange, StoreInfo, info
from penstock.view.sheet import contact_sheet

__all__ = ["SizeRange", "StoreInfo", "contact_sheet", "info"]
