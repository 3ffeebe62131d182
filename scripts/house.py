"""Compare the size and structure of the package with the budgets in house.toml (`make check`).

Prints each figure that differs from its budget. Exits with 1 if one is above: what raises it takes a page in
docs/decisions that says why. A figure below its budget is printed with it, so that the same change lowers the budget;
budgets of code are rounded up to 250 lines, of types to 50, so that two changes seldom write the same budget.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONG = 600
ROUNDED_TO = {"code_lines": 250, "types": 50}
LAYOUT = frozenset(
    (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    )
)


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
            step = ROUNDED_TO.get(table, 1)
            enough = -(-figure // step) * step
            if figure > budget:
                differences.append((f"house.toml: [{table}] {name} is {figure}, above its budget of {budget}", True))
            elif budget - figure >= step:
                line = f"house.toml: [{table}] {name} is {figure}: lower its budget of {budget} to {enough}"
                differences.append((line, False))
    return differences


def measure(package: Path) -> dict[str, dict[str, int]]:
    """The figures of a package, in the tables of house.toml.

    ``code_lines``: lines of code, of the whole package and of each folder in it. ``modules``: those in the fullest
    folder, and those of more than 600 lines, ``__init__`` apart. ``types``: lines that name ``Any`` or an alias of it.
    ``circles``: sets of modules that import each other in a loop, imports in functions included.
    """
    texts = {path: path.read_text() for path in sorted(package.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    counts = {path: count_code(text, trees[path]) for path, text in texts.items()}
    code_lines = {package.name: sum(counts.values())}
    for path, count in counts.items():
        if path.parent != package:
            folder = path.relative_to(package).parts[0]
            code_lines[folder] = code_lines.get(folder, 0) + count
    modules = [path for path in texts if path.name != "__init__.py"]
    in_folder = [sum(path.parent == folder for path in modules) for folder in {path.parent for path in modules}]
    named = {name_module(path, package): tree for path, tree in trees.items()}
    return {
        "code_lines": code_lines,
        "modules": {
            "in_one_folder": max(in_folder, default=0),
            "over_600_lines": sum(texts[path].count("\n") > LONG for path in modules),
        },
        "types": {"lines_with_Any": count_any(named)},
        "circles": {"modules": len(find_circles(read_imports(package, trees)))},
    }


def name_module(path: Path, package: Path) -> str:
    """The dotted name under which a file of the package is imported."""
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def walk(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree, which several figures ask for."""
    return list(ast.walk(tree))


def count_code(text: str, tree: ast.Module) -> int:
    """How many lines hold code that is no import; docstrings, comments and blank lines are none.

    Each line of a statement of several lines counts. A statement has lines of its own (`ruff format`).
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.Expr) and is_text(node.value)):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def count_any(trees: Mapping[str, ast.Module]) -> int:
    """How many lines name ``Any``, or an alias of it, in code; imports are not counted."""
    aliases = find_aliases(trees)
    return sum(
        len({line for name, line in read_names(tree) if name in aliases[module]}) for module, tree in trees.items()
    )


def find_aliases(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """For each module, the names of its own that are ``Any`` or that its types are built of.

    ``Value = Any`` makes an alias, and so do ``Tree = dict[str, Any]`` and ``Node = Tree | int``, in a module or under
    an ``if`` of it; an import takes the alias to the next module, with its name or another.
    """
    aliases: dict[str, set[str]] = {"typing": {"Any"}} | {module: set() for module in trees}
    imports = {
        module: [node for node in walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        for module, tree in trees.items()
    }
    is_growing = True
    while is_growing:
        is_growing = False
        for module, tree in trees.items():
            found = {*find_imported(imports[module], aliases), *find_assigned(tree.body, aliases[module])}
            is_growing |= not found <= aliases[module]
            aliases[module] |= found
    return aliases


def find_imported(imports: list[ast.Import | ast.ImportFrom], aliases: Mapping[str, set[str]]) -> Iterator[str]:
    """The aliases that a module imports, as it names them: ``Value``, or ``sample.Value`` where it imports a module."""
    for node in imports:
        origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for imported in node.names:
            bound = imported.asname or imported.name
            in_module = aliases.get(origin + imported.name, ())
            yield from (f"{bound}.{name}" for name in in_module if "." not in name)
            if imported.name in aliases.get(origin.removesuffix("."), ()):
                yield bound


def find_assigned(body: list[ast.stmt], known: set[str]) -> Iterator[str]:
    """The names to which a module assigns a type that is built of known aliases."""
    for node in body:
        if isinstance(node, ast.If):
            yield from find_assigned(node.body + node.orelse, known)
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        if not isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp):
            continue  # a value that is computed is no type
        if any(name in known for name, _ in read_names(node.value)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def read_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each name in code, dotted where it is an attribute, and its line; names in quoted types too."""
    for node in walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            yield spell_name(node), node.lineno
        for part in find_types(node):
            for quoted in ast.walk(part):
                if isinstance(quoted, ast.Constant) and isinstance(quoted.value, str):
                    yield from ((name, quoted.lineno) for name in re.findall(r"[\w.]+", quoted.value))


def spell_name(node: ast.expr) -> str:
    """A name with the attributes that are asked of it: ``sample.Value``; what is no name is left out."""
    if isinstance(node, ast.Attribute):
        return f"{spell_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def find_types(node: ast.AST) -> Iterator[ast.expr]:
    """What is a type in a node even where it is quoted: an annotation, what is returned, the type of a ``cast``."""
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
        yield node.annotation
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
        yield node.returns
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast":
        yield node.args[0]


def is_text(node: ast.expr) -> bool:
    """Whether a statement is only a string: a docstring."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def read_imports(package: Path, trees: Mapping[Path, ast.Module]) -> dict[str, set[str]]:
    """Which modules of the package each one imports; what only hands names on (``__init__``) is no module here."""
    names = {path: name_module(path, package) for path in trees if path.name != "__init__.py"}
    modules = set(names.values())
    return {
        name: {found for found in imported_names(trees[path]) if found in modules} - {name}
        for path, name in names.items()
    }


def imported_names(tree: ast.Module) -> Iterator[str]:
    """The dotted names that a module imports, anywhere in it; of ``from a import b`` both ``a`` and ``a.b``."""
    for node in walk(tree):
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
