"""The figures of the package that house.toml limits, and how `make check` compares them (scripts/house.py)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(name="house")
def load_house() -> ModuleType:
    """scripts/house.py as a module."""
    spec = importlib.util.spec_from_file_location("penstock_house", ROOT / "scripts" / "house.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures_of_a_package(house: ModuleType, tmp_path: Path) -> None:
    """Lines, modules, names of `Any` and circles are counted; `__init__` is no module, imports in functions count."""
    package = tmp_path / "shop"
    (package / "till").mkdir(parents=True)
    (package / "__init__.py").write_text("from shop.till import coins\n")
    (package / "long.py").write_text("value = 1\n" * 401)
    (package / "till" / "coins.py").write_text("from typing import Any\nimport shop.till.notes\nx: Any = 1\n")
    (package / "till" / "notes.py").write_text("def change():\n    from shop.till import coins\n    return coins\n")

    figures = house.measure(package)

    assert figures == {
        "lines": {"shop": 408, "till": 6},
        "modules": {"in_one_folder": 2, "over_400_lines": 1, "under_60_lines": 2},
        "types": {"lines_with_Any": 2},
        "circles": {"modules": 1},
    }


@pytest.mark.parametrize(
    ("figure", "budget", "said"),
    [
        (11, 10, [("house.toml: [lines] shop is 11, above its budget of 10", True)]),
        (9, 10, [("house.toml: [lines] shop is 9: lower its budget of 10", False)]),
        (10, 10, []),
    ],
)
def test_a_figure_is_compared_with_its_budget(
    house: ModuleType, figure: int, budget: int, said: list[tuple[str, bool]]
) -> None:
    """A figure above its budget fails; one below is told, so that the budget is lowered in the same change."""
    assert house.compare({"lines": {"shop": figure}}, {"lines": {"shop": budget}}) == said


def test_what_has_no_budget_is_above_it(house: ModuleType) -> None:
    """A new package needs a budget: without one, each line is above."""
    assert house.compare({"lines": {"shop": 1}}, {}) == [("house.toml: [lines] shop is 1, above its budget of 0", True)]
