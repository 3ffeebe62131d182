"""The examples in the docstrings of ``penstock.transforms`` run as written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import penstock.transforms


def test_docstring_examples() -> None:
    """Every example gives what it says, and there are some."""
    modules = [
        importlib.import_module(m.name)
        for m in pkgutil.walk_packages(penstock.transforms.__path__, "penstock.transforms.")
        if not m.name.endswith(".public_table")  # for another program alone: it is not installed here
    ]

    results = [doctest.testmod(module) for module in modules]

    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) >= 11
