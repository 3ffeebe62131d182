"""The figures of the package that house.toml limits, and how `make check` compares them (scripts/house.py)."""

from __future__ import annotations

import ast
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
    """Code, modules, names of `Any` and circles are counted; `__init__` is no module, imports in functions count."""
    package = tmp_path / "shop"
    (package / "till").mkdir(parents=True)
    (package / "__init__.py").write_text("from shop.till import coins\n")
    (package / "full.py").write_text("value = 1\n" * 600)
    (package / "long.py").write_text("value = 1\n" * 601)
    (package / "till" / "coins.py").write_text("from typing import Any\nimport shop.till.notes\nx: Any = 1\n")
    (package / "till" / "notes.py").write_text("def change():\n    from shop.till import coins\n    return coins\n")

    figures = house.measure(package)

    assert figures == {
        "code_lines": {"shop": 1204, "till": 3},
        "modules": {"in_one_folder": 2, "over_600_lines": 1},
        "types": {"lines_with_Any": 1},
        "circles": {"modules": 1},
    }


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x = 1\n\n# why\ny = 2  # why\n", 2),
        ('"""Docs.\n\nMore.\n"""\n\nimport os\nfrom os import (\n    path,\n)\n', 0),
        ('def f():\n    """Docs."""\n    import os\n\n    return os\n', 2),
        ('class C:\n    """Docs."""\n\n    x: int\n    """Docs of x.\n    """\n', 2),
        ("x = [\n    # why\n    1,\n\n    2,\n]\n", 4),
        ('x = """\n\n# text\n"""\n', 4),
    ],
    ids=["comments", "imports", "function", "attribute", "several-lines", "text"],
)
def test_lines_of_code(house: ModuleType, text: str, count: int) -> None:
    """A line counts if it holds code; docstrings, comments, blank lines and imports do not."""
    assert house.count_code(text, ast.parse(text)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("from typing import Any\n# Any\n'Any'\nx: Any\n", 1),
        ("import typing\nx: typing.Any\n", 1),
        ("from typing import Any as Thing\nx: Thing\n", 1),
        ("from typing import Any\ny = cast('list[Any]', x)\n", 1),
        ("from typing import Any\nx: 'list[Any]'\n", 1),
        ("from typing import Any\ndef f(\n    x: 'Any',\n    y: int,\n) -> 'Any': ...\n", 2),
        ("from typing import Any\nprint('Any')\n", 0),
        ("from typing import Any\nTree = dict[str, Any]\nNode = Tree | int\nx: Node\ny: int\n", 3),
        ("from typing import Any, TypeAlias\nTree: TypeAlias = Any\nx: Tree\n", 2),
        ("from shop.types import Value\nx: Value\n", 1),
        ("from shop.types import Value as V\nx: V\n", 1),
        ("from shop import types\nx: types.Value\ny: types.Other\n", 1),
        ("import shop.types\nx: shop.types.Value\n", 1),
        ("import shop.types\nif True:\n    Held = list[shop.types.Value]\nx: Held\n", 2),
        ("from shop import types\nx = make(types.Value)\ny: x\n", 1),
        ("from elsewhere import Value\nx: Value\n", 0),
    ],
)
def test_lines_with_any(house: ModuleType, text: str, count: int) -> None:
    """A line counts if its code names `Any`, or an alias that is built of it, whatever an import calls it."""
    types = ast.parse("from typing import Any\nValue = Any\nOther = int\n")

    assert house.count_any({"shop": ast.parse(text), "shop.types": types}) - 1 == count


def test_aliases_are_followed_in_any_order(house: ModuleType) -> None:
    """An alias reaches a module that is read before the one where it is made."""
    texts = {
        "a": "from b import Second\nThird = list[Second]\nx: Third\n",
        "b": "from c import First\nSecond = list[First]\n",
        "c": "from typing import Any\nFirst = Any\n",
    }

    assert house.count_any({name: ast.parse(text) for name, text in texts.items()}) == 4


@pytest.mark.parametrize(
    ("figure", "budget", "said"),
    [
        (11, 10, [("house.toml: [modules] shop is 11, above its budget of 10", True)]),
        (9, 10, [("house.toml: [modules] shop is 9: lower its budget of 10 to 9", False)]),
        (10, 10, []),
    ],
)
def test_a_figure_is_compared_with_its_budget(
    house: ModuleType, figure: int, budget: int, said: list[tuple[str, bool]]
) -> None:
    """A figure above its budget fails; one below is told, so that the budget is lowered in the same change."""
    assert house.compare({"modules": {"shop": figure}}, {"modules": {"shop": budget}}) == said


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        (1001, [("house.toml: [code_lines] shop is 1001, above its budget of 1000", True)]),
        (1000, []),
        (751, []),
        (750, [("house.toml: [code_lines] shop is 750: lower its budget of 1000 to 750", False)]),
        (499, [("house.toml: [code_lines] shop is 499: lower its budget of 1000 to 500", False)]),
    ],
)
def test_budgets_of_code_are_rounded_up(house: ModuleType, figure: int, said: list[tuple[str, bool]]) -> None:
    """A budget of code has up to 249 lines to spare: one is lowered only where another rounded number holds."""
    assert house.compare({"code_lines": {"shop": figure}}, {"code_lines": {"shop": 1000}}) == said


def test_what_has_no_budget_is_above_it(house: ModuleType) -> None:
    """A new package needs a budget: without one, each line is above."""
    assert house.compare({"code_lines": {"shop": 1}}, {}) == [
        ("house.toml: [code_lines] shop is 1, above its budget of 0", True)
    ]
