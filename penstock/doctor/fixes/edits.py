"""Edits of Python source by the positions that ``ast`` gives: what is not edited stays byte for byte.

Nothing is executed. What cannot be edited with certainty (``**kwargs`` of a call, names from a module of the user's) is
refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Edit", "NotEditableError", "Position", "PythonSource"]

_TORCH_LOADER: Final = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})
_OPENERS: Final = frozenset({"h5py.File", "sqlite3.connect", "tarfile.open", "zipfile.ZipFile"})
_READERS: Final = frozenset(
    {
        *("glob.glob", "numpy.genfromtxt", "numpy.loadtxt", "os.listdir", "pyarrow.parquet.read_table", "torch.load"),
        *(f"pandas.read_{kind}" for kind in ("csv", "excel", "feather", "json", "parquet", "pickle")),
    }
)
_PARSERS: Final = frozenset({"json.load", "pickle.load", "yaml.safe_load"})
_CHANGING: Final = re.compile(r"append|clear|extend|fill|insert|pop|remove|reverse|sort|update|[a-z]\w*[a-z0-9]_")
"""Methods that change their object; torch's end with one underscore."""

Position = tuple[int | None, int | None, int | None, int | None]
"""First and last line, first and last column, as ``code.co_positions()`` gives them."""


class NotEditableError(Exception):
    """A change cannot be written into a file; the text says why."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A part of the text, by its characters, and what takes its place."""

    start: int
    end: int
    text: str


class PythonSource:
    """The source of a file.

    Raises SyntaxError if it is no Python.
    """

    def __init__(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._lines = [0, *(found.end() for found in re.finditer(r"\r\n|\r|\n", text))]
        self._names = dict(_list_imported(self.tree))

    def apply(self, edits: Sequence[Edit]) -> str:
        """Return the text with all edits. Raises NotEditableError if that is no Python any more."""
        parts, at = list[str](), 0
        for edit in sorted(dict.fromkeys(edits), key=lambda edit: (edit.start, edit.end)):
            parts += [self.text[at : edit.start], edit.text]
            at = edit.end
        text = "".join([*parts, self.text[at:]])
        try:
            compile(text, "<edited>", "exec", dont_inherit=True)
        except SyntaxError as error:
            raise NotEditableError(f"its source is written in a way that is not known here ({error.msg})") from error
        return text

    def find_call(self, position: Position) -> ast.Call:
        """Return the call at a position. Raises NotEditableError if there is none."""
        for node in ast.walk(self.tree):
            at = (getattr(node, name, None) for name in ("lineno", "end_lineno", "col_offset", "end_col_offset"))
            if isinstance(node, ast.Call) and tuple(at) == position:
                return node
        raise NotEditableError(f"there is no call at line {position[0]}")

    def resolve(self, node: ast.expr) -> str:
        """Return the full name of a function by the imports, such as ``numpy.load`` for ``np.load``; "" for no name."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, node.id)
        name = self.resolve(node.value) if isinstance(node, ast.Attribute) else ""
        return f"{name}.{node.attr}" if isinstance(node, ast.Attribute) and name else ""

    def set_arguments(self, call: ast.Call, values: Mapping[str, str], parameters: Sequence[str]) -> list[Edit]:
        """Return edits that give a call other arguments.

        ``values``: sources of arguments by name. ``parameters``: names of those that may be given by place. Raises
        NotEditableError if the call unpacks arguments.
        """
        present = _find_arguments(call, parameters)
        edits = [self._replace(present[name], value) for name, value in values.items() if name in present]
        added = [f"{name}={value}" for name, value in values.items() if name not in present]
        return [*edits, *(self._add_arguments(call, added) if added else [])]

    def wrap_argument(self, call: ast.Call, name: str, function: str, parameters: Sequence[str]) -> list[Edit]:
        """Return edits that pass an argument of a call through a function; the others are as of ``set_arguments``."""
        value = _find_arguments(call, parameters).get(name)
        if value is None:
            raise NotEditableError(f"the call does not give {name}")
        return [
            Edit(self._start(value), self._start(value), f"{function}("),
            Edit(self._end(value), self._end(value), ")"),
        ]

    def import_loader(self, call: ast.Call) -> list[Edit]:
        """Return edits that have a call make a loader of penstock's in the place of torch's.

        Raises NotEditableError if it is not known to call torch's.
        """
        if self.resolve(call.func) not in _TORCH_LOADER:
            raise NotEditableError("the loader is not made by the name of torch's class")
        if not isinstance(call.func, ast.Name):
            return [self._replace(call.func, "penstock.torch.DataLoader"), self.add_statement("import penstock.torch")]
        name, edits = call.func.id, list[Edit]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if f"{node.module}.{alias.name}" in _TORCH_LOADER and (alias.asname or alias.name) == name:
                        edits += self._import_from_penstock(node, alias)
        return edits

    def set_threads(self) -> Edit:
        """Return an edit that lets torch compute with one thread."""
        tops = [each for each in self.tree.body if isinstance(each, (ast.Import, ast.ImportFrom))]
        named = [name for each in tops for name, full in _list_imported(each) if full == "torch"]
        name = named[0] if named else "torch"
        return self.add_statement(*([] if named else ["import torch"]), f"{name}.set_num_threads(1)", after=named)

    def add_statement(self, *statements: str, after: Collection[str] = ()) -> Edit:
        """Return an edit that adds statements behind the first imports of the module that bind one of ``after``."""
        last: ast.stmt | None = None
        for node in self.tree.body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                if last is not None:
                    break
            elif last is not None or not after or any(name in after for name, _ in _list_imported(node)):
                last = node
        if last is None:
            raise NotEditableError("the file imports nothing at its top")
        end = self._end_of_line(self._end(last))
        return Edit(end, end, "".join(f"{self._newline}{each}" for each in statements))

    def map_files(self, first_line: int) -> list[Edit]:
        """Return edits with which ``numpy.load`` maps files, in the class whose method begins at a line.

        Only where a part of the array is taken: ``np.load(path)[index]``. Calls in ``__init__`` stay: they read once.
        """
        edits: list[Edit] = []
        for method in self._list_methods(first_line):
            for call in _list_indexed(method):
                if self.resolve(call.func) == "numpy.load" and len(call.args) + len(call.keywords) == 1:
                    edits += self.set_arguments(call, {"mmap_mode": '"r"'}, ())
        return edits

    def keep_files(self, first_line: int) -> list[Edit]:
        """Return edits with which a process keeps a file that it opens or reads again for each sample.

        In the class as above, where the arguments are the same for all samples and nothing is changed in place.
        ``with`` and ``close()`` do not close the file any more; a forked process opens its own.
        """
        edits, added = list[Edit](), {"import functools": None}
        for method in self._list_methods(first_line):
            for call, name, in_with in _list_same_calls(method):
                full = self.resolve(call.func)
                kept = f"kept_{full.replace('.', '_')}"
                if full == "open" and name:
                    edits += self._keep_parsed(method, name, call, added)
                if full not in _OPENERS | _READERS:
                    continue
                added[f"{kept} = functools.cache({ast.unparse(call.func)})"] = None
                if full in _OPENERS:
                    edits += [self._replace(each, "pass") for each in _list_closing(method, name)]
                    added |= {"import os": None, f"os.register_at_fork(after_in_child={kept}.cache_clear)": None}
                if in_with:
                    edits.append(Edit(self._end(call), self._end(call), ")"))
                    added["import contextlib"] = None
                edits.append(self._replace(call.func, f"contextlib.nullcontext({kept}" if in_with else kept))
        lines = sorted(added, key=lambda line: not line.startswith("import"))
        return [*edits, self.add_statement(*lines)] if edits else []

    def _keep_parsed(self, method: ast.AST, name: str, file: ast.Call, added: dict[str, None]) -> Iterator[Edit]:
        """Keep what is parsed of a ``file``, which itself is opened again: that costs little."""
        more = "".join(f", {ast.unparse(each)}" for each in [*file.args[1:], *file.keywords])
        for call in (each for each in ast.walk(method) if isinstance(each, ast.Call)):
            if (full := self.resolve(call.func)) in _PARSERS and ast.unparse(call).endswith(f"({name})"):
                kept = f"kept_{full.replace('.', '_')}"
                added[f"{kept} = functools.cache(lambda name: {ast.unparse(call.func)}(open(name{more})))"] = None
                yield self._replace(call, f"{kept}({name}.name)")

    def _list_methods(self, first_line: int) -> Iterator[ast.FunctionDef]:
        """Yield the methods of the class whose method begins at a line, but not ``__init__``, which runs once."""
        for owner in (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)):
            methods = [each for each in owner.body if isinstance(each, ast.FunctionDef)]
            if first_line in map(_first_line, methods):
                yield from (each for each in methods if each.name != "__init__")

    def _import_from_penstock(self, node: ast.ImportFrom, alias: ast.alias) -> Iterator[Edit]:
        line = "from penstock.torch import DataLoader" + (f" as {alias.asname}" if alias.asname else "")
        start, at = self._start(node), node.names.index(alias)
        if len(node.names) == 1:
            yield Edit(start, self._end(node), line)
            return
        indent = re.match(r"[ \t]*", self.text[self._lines[node.lineno - 1] :])
        yield Edit(start, start, f"{line}{self._newline}{indent.group() if indent else ''}")
        if at + 1 < len(node.names):
            yield Edit(self._start(alias), self._start(node.names[at + 1]), "")
        else:
            yield Edit(self._end(node.names[at - 1]), self._end(alias), "")

    def _add_arguments(self, call: ast.Call, added: Sequence[str]) -> Iterator[Edit]:
        """Add arguments at the end of a call, on a line of their own if the others are."""
        close = self._end(call) - 1
        arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        if not arguments:
            yield Edit(close, close, ", ".join(added))
            return
        last = max(arguments, key=self._end)
        end, has_comma = self._end(last), False
        for found in re.finditer(r"#[^\r\n]*|[),]", self.text[end:close]):  # ')': of a value in brackets
            if not found.group().startswith("#"):
                end, has_comma = self._end(last) + found.end(), found.group() == ","
        if not re.search(r"[\r\n]", self.text[end:close]):
            yield Edit(end, end, f"{'' if has_comma else ','} {', '.join(added)}{',' if has_comma else ''}")
            return
        if not has_comma:
            yield Edit(end, end, ",")
        indent = re.match(r"[ \t]*", self.text[self._lines[last.lineno - 1] :])
        margin, line_end = indent.group() if indent else "", self._end_of_line(end)
        yield Edit(line_end, line_end, "".join(f"{self._newline}{margin}{each}," for each in added))

    def _replace(self, node: ast.expr, text: str) -> Edit:
        return Edit(self._start(node), self._end(node), text)

    def _start(self, node: ast.expr | ast.stmt | ast.alias | ast.keyword) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt | ast.alias | ast.keyword) -> int:
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        """Return the place of a character; columns of ``ast`` are bytes of UTF-8."""
        start = self._lines[line - 1]
        return start + len(self.text[start : self._end_of_line(start)].encode()[:column].decode())

    def _end_of_line(self, at: int) -> int:
        found = re.compile(r"[\r\n]").search(self.text, at)
        return len(self.text) if found is None else found.start()


def _list_imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that imports bind, with their full names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            tops = ((alias, alias.name.partition(".")[0]) for alias in node.names)
            yield from ((alias.asname or top, alias.name if alias.asname else top) for alias, top in tops)


def _find_arguments(call: ast.Call, parameters: Sequence[str]) -> dict[str | None, ast.expr]:
    """Return the arguments of a call by name. Raises NotEditableError if it unpacks some."""
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        raise NotEditableError("the call unpacks its arguments from * or **")
    by_place: dict[str | None, ast.expr] = dict(zip(parameters, call.args, strict=False))
    return by_place | {each.arg: each.value for each in call.keywords}


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _list_indexed(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """Yield calls of which only parts are used: ``f(x)[i]``, or ``y = f(x)`` where each use of ``y`` is ``y[i]``."""
    nodes = list(ast.walk(function))
    indexed = {id(node.value) for node in nodes if isinstance(node, ast.Subscript)}
    whole = {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in indexed
    }
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
            yield node.value
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if len(node.targets) == 1 and isinstance(target, ast.Name) and target.id not in whole:
                yield node.value


def _list_same_calls(function: ast.FunctionDef) -> Iterator[tuple[ast.Call, str, bool]]:
    """Yield calls with the same arguments for all samples, the name of their result, and whether ``with`` gives it.

    None of a function that changes something in place, which may be a result.
    """
    nodes = [] if any(map(_changes_in_place, ast.walk(function))) else list(ast.walk(function))
    own = {each.arg for each in nodes if isinstance(each, ast.arg)} - {each.arg for each in function.args.args[:1]}
    own |= {each.id for each in nodes if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    parents = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
    for call in (each for each in nodes if isinstance(each, ast.Call)):
        parent = parents[id(call)]
        targets = parent.targets if isinstance(parent, ast.Assign) else [getattr(parent, "optional_vars", None)]
        given = {n.id for part in (*call.args, *call.keywords) for n in ast.walk(part) if isinstance(n, ast.Name)}
        if given.isdisjoint(own):
            yield call, getattr(targets[0], "id", ""), isinstance(parent, ast.withitem)


def _changes_in_place(node: ast.AST) -> bool:
    is_set = isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load)
    changes = isinstance(node, ast.Attribute) and _CHANGING.fullmatch(node.attr) is not None
    return is_set or changes or isinstance(node, ast.AugAssign) or getattr(node, "arg", "") in {"inplace", "out"}


def _list_closing(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """Yield ``name.close()`` where it is a statement."""
    for node in ast.walk(function):
        if isinstance(node, ast.Expr) and ast.unparse(node) == f"{name}.close()":
            yield node.value
