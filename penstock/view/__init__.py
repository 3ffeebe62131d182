"""Summaries of a store: its contents in numbers, and a contact sheet of its images."""

from __future__ import annotations

from penstock.view.info import SizeRange, StoreInfo, info
from penstock.view.sheet import contact_sheet

__all__ = ["SizeRange", "StoreInfo", "contact_sheet", "info"]
