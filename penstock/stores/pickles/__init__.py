"""Pickles of plain values, read without running code."""
