"""Compare the size and structure of the package with the budgets in house.toml (`make check`).

Prints each figure that differs from its budget. Exits with 1 if one is above: what raises it takes a page in
docs/decisions that says why. A figure below its budget is printed with it, so that the same change lowers the budget.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONG, SHORT = 400, 60


def main() -> int:
    """Compare and print; 1 if a figure is above its budget."""
    budgets = tomllib.loads((ROOT / "house.toml").read_text())
    differences = compare(measure(ROOT / "penstock"), budgets)
    for line, _ in differences:
        print(line)
    return int(any(is_above for _, is_above in differences))


def compare(figures: dict[str, dict[str, int]], budgets: dict[str, dict[str, int]]) -> list[tuple[str, bool]]:
    """One line for each figure that is not its budget, and whether it is above."""
    differences = []
    for table in sorted(figures.keys() | budgets.keys()):
        found, allowed = figures.get(table, {}), budgets.get(table, {})
        for name in sorted(found.keys() | allowed.keys()):
            figure, budget = found.get(name, 0), allowed.get(name, 0)
            if figure > budget:
                differences.append((f"house.toml: [{table}] {name} is {figure}, above its budget of {budget}", True))
            elif figure < budget:
                differences.append((f"house.toml: [{table}] {name} is {figure}: lower its budget of {budget}", False))
    return differences


def measure(package: Path) -> dict[str, dict[str, int]]:
    """The figures of a package, in the tables of house.toml.

    ``lines`` of Python, of the whole package and of each folder in it. ``modules``: those in the fullest folder, those
    of more than 400 lines and of fewer than 60, ``__init__`` apart. ``types``: lines that name ``Any``. ``circles``:
    sets of modules that import each other in a loop, imports in functions included.
    """
    texts = {path: path.read_text() for path in sorted(package.rglob("*.py"))}
    counts = {path: text.count("\n") for path, text in texts.items()}
    lines = {package.name: sum(counts.values())}
    for path, count in counts.items():
        if path.parent != package:
            folder = path.relative_to(package).parts[0]
            lines[folder] = lines.get(folder, 0) + count
    modules = {path: count for path, count in counts.items() if path.name != "__init__.py"}
    in_folder = [sum(path.parent == folder for path in modules) for folder in {path.parent for path in modules}]
    naming_any = sum(bool(re.search(r"\bAny\b", line)) for text in texts.values() for line in text.split("\n"))
    return {
        "lines": lines,
        "modules": {
            "in_one_folder": max(in_folder, default=0),
            "over_400_lines": sum(count > LONG for count in modules.values()),
            "under_60_lines": sum(count < SHORT for count in modules.values()),
        },
        "types": {"lines_with_Any": naming_any},
        "circles": {"modules": len(find_circles(read_imports(package, texts)))},
    }


def read_imports(package: Path, texts: dict[Path, str]) -> dict[str, set[str]]:
    """Which modules of the package each one imports; what only hands names on (``__init__``) is no module here."""
    names = {path: ".".join(path.relative_to(package.parent).with_suffix("").parts) for path in texts}
    modules = {name for name in names.values() if not name.endswith(".__init__")}
    imports: dict[str, set[str]] = {name: set() for name in modules}
    for path, text in texts.items():
        if names[path] in modules:
            imports[names[path]] = {name for name in imported_names(text) if name in modules} - {names[path]}
    return imports


def imported_names(text: str) -> Iterator[str]:
    """The dotted names that a module imports, anywhere in it; of ``from a import b`` both ``a`` and ``a.b``."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def find_circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The sets of two or more modules each of which reaches all others of its set."""
    reached = {name: reach(name, imports) for name in imports}
    circles: list[set[str]] = []
    for name in imports:
        circle = {other for other in reached[name] if name in reached[other]}
        if circle and not any(name in known for known in circles):
            circles.append(circle | {name})
    return circles


def reach(start: str, imports: dict[str, set[str]]) -> set[str]:
    """All modules that an import of ``start`` leads to."""
    found: set[str] = set()
    left = list(imports[start])
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left.extend(imports[name])
    return found - {start}


if __name__ == "__main__":
    sys.exit(main())
