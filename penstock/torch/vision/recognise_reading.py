"""Recognise code that reads an image from its path and makes RGB of it, with one of four libraries.

::

    def __getitem__(self, i):                                    def __getitem__(self, i):
        path = self.paths[i]                                         path = self.paths[i]
        image = cv2.imread(path)                          ──>        image = path
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)               image = image
        return self.transform(image), self.labels[i]                 return image, self.labels[i]

    the pixels are OpenCV's, an array of RGB, oriented; self.transform is called with it

The source of a loader, or of a ``__getitem__``, is read and rewritten, so that it returns the path in the place of the
image: all else in it runs as it is written. A use of the image that is not known here ends the recognition, with the
line and why. Called by :mod:`penstock.torch.vision.folders` and :mod:`penstock.torch.vision.own_datasets`; no code of
the user is called here, and no library is imported.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import functools
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import torchvision
from torchvision.datasets import folder

from penstock.datasets.user_code import is_user_code
from penstock.torch.vision.recognise import NotRecognisedError
from penstock.transforms.decoding.jpeg_markers import frame

__all__ = ["Reading", "RecognisedReading", "keep_source", "recognise_getitem", "recognise_loader"]


_CALLS: Final = (
    ("builtins:open", "path", ("rb",), "file"),
    ("PIL.Image:open", "path file", ("",), "opened"),
    ("convert", "opened", ("RGB",), "pil"),
    ("torchvision.datasets.folder:pil_loader", "path", ("",), "pil"),
    ("torchvision.datasets.folder:default_loader", "path", ("",), "pil"),
    ("torchvision.io:decode_image", "path", ("RGB",), "tensor"),
    ("torchvision.io:read_image", "path", ("RGB",), "tensor"),
    ("torchcodec.decoders:decode_image", "path", ("", "RGB"), "tensor"),
    ("cv2:imread", "path", ("", "1"), "bgr"),
    ("cv2:imread", "path", ("256",), "array"),
    ("cv2:imdecode", "path", ("1",), "bgr"),
    ("cv2:imdecode", "path", ("256",), "array"),
    ("cv2:cvtColor", "bgr", ("4",), "array"),
    ("numpy:array", "pil", ("",), "array"),
    ("numpy:asarray", "pil", ("",), "array"),
    ("PIL.Image:fromarray", "array", ("",), "pil"),
)
"""A function, or a method of the image; what it is called with; its other arguments, as text; and what it returns."""

_NOT_READY: Final = {
    "file": "a file is opened, and not read as an image",
    "opened": 'the image is not converted, so it keeps the channels of its file; add .convert("RGB")',
    "bgr": "the channels are blue, green, red; convert them with cv2.cvtColor(image, cv2.COLOR_BGR2RGB)",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """What code has made of a file."""

    stage: str = "path"
    """{"path", "file", "opened", "bgr"}, or the type of an image that is read and converted: a picture of Pillow
    ("pil"), an array HWC ("array") or a tensor CHW ("tensor")."""
    library: str = ""  # {"PIL", "torchvision", "torchcodec", "cv2"}; the last two turn images by Exif
    steps: tuple[object, ...] = ()  # what is called with the image afterwards

    def reads_alike(self, encoded: bytes) -> bool:
        """Whether the library makes the pixels of :func:`penstock.decode` of a file; measured, by format."""
        if self.library == "PIL":
            return True
        if encoded[:2] == b"\xff\xd8":
            header = frame(encoded) if self.library == "cv2" else None  # whose CMYK differs by one level
            return header is None or header[2] != 4
        is_deep = encoded[:4] == b"\x89PNG" and encoded[24:25] == b"\x10"  # each makes 8 of 16 bits by its own rule
        is_moving = encoded[12:16] == b"VP8X" and encoded[20] & 2  # a WebP of several pictures
        return encoded[:4] in {b"\x89PNG", b"RIFF"} and not (is_deep or is_moving)

    def after(self, called: object, options: Sequence[object]) -> Reading:
        """What a known call makes of it; ``options``: its other arguments."""
        text = " ".join(str(getattr(value, "name", value)) for value in options)
        rows = [row for row in _CALLS if row[0] == _find_name(called)]
        for name, stage, texts, result in rows:
            if self.stage in stage.split() and text in texts and not self.steps:
                library = {"file": "", "opened": "PIL", "pil": "PIL"}.get(result, name.split(":")[0].split(".")[0])
                return Reading(result, self.library or library)
        known = " or ".join(repr(each) if each else "no other argument" for row in rows for each in row[2])
        raise NotRecognisedError(f"it has {text!r}; penstock knows it with {known}, which gives three channels")

    def check_ready(self) -> Reading:
        """Raise NotRecognisedError unless this is an image that is read and converted."""
        if self.stage in _NOT_READY:
            raise NotRecognisedError(_NOT_READY[self.stage])
        return self


@dataclass(frozen=True, slots=True)
class RecognisedReading:
    """A function whose reading is recognised."""

    find_source: Callable[..., object]
    """The function, which returns what the image is read from in its place: a path, or bytes, or an open file."""
    reading: Reading


def keep_source(source: object) -> object:
    """The ``find_source`` of a loader that reads what it is given."""
    return source


def recognise_loader(loader: object) -> RecognisedReading:
    """Recognise a function that takes a path and returns the image.

    Raises
    ------
    NotRecognisedError
        If it is not recognised: why, with the line of its source.
    """
    called, options = loader, cast("tuple[object, ...]", ())
    if isinstance(loader, functools.partial) and not loader.args:
        called, options = loader.func, (*loader.keywords.values(),)
    if _find_name(called):
        return RecognisedReading(keep_source, Reading().after(called, options).check_ready())
    return _Rewriter(loader, None).rewrite()


def recognise_getitem(dataset: object) -> RecognisedReading:
    """Recognise a user's ``__getitem__`` that returns an image and a target; raises as :func:`recognise_loader`."""
    function = getattr(type(dataset), "__getitem__", None)
    if not (isinstance(function, types.FunctionType) and is_user_code(function)):
        raise NotRecognisedError("penstock does not know this class, and its __getitem__ is not the user's own")
    if hasattr(dataset, "__getitems__") or not hasattr(dataset, "__len__"):
        raise NotRecognisedError("it has __getitems__, or no __len__")
    return _Rewriter(function, dataset, [True, False]).rewrite()


def _find_name(called: object) -> str:
    """The name in the table of a function that is the same object; empty if there is none."""
    for name, *_ in _CALLS:
        module, _, attribute = name.partition(":")
        found = getattr(sys.modules.get(module), attribute, None) if attribute else name
        if found is not None and (found is called or (isinstance(called, str) and called == found)):
            is_other = called is folder.default_loader and torchvision.get_image_backend() != "PIL"
            return "" if is_other else name
    return ""


_CHECKS: Final = (" is None", " is not None")
_UNKNOWN_USE: Final = "penstock does not know this use of the image"
_UNKNOWN: Final = object()
"""The value of a name that only running the code would tell."""


class _Rewriter(ast.NodeTransformer):
    """Rewrites one function."""

    def __init__(self, function: object, owner: object, wanted: Sequence[bool] = (True,)) -> None:
        if not isinstance(function, types.FunctionType):
            raise NotRecognisedError(f"{function!r:.80} is no function that penstock knows, and none in Python")
        self._function, self._owner, self._wanted = function, owner, list(wanted)  # which returned value is the image
        self._readings: dict[str, Reading] = {}  # of local names
        self._marks: dict[ast.AST, Reading] = {}  # of nodes that stand for the image, whose value is now its source
        code, cells = function.__code__, [each.cell_contents for each in function.__closure__ or ()]
        self._needed = dict(zip(code.co_freevars, cells, strict=True))
        self._values = vars(builtins) | function.__globals__ | self._needed
        self._values |= dict.fromkeys((*code.co_varnames, *code.co_cellvars), _UNKNOWN)
        if owner is not None:
            self._values[code.co_varnames[0]] = owner
        self._reasons: list[str] = []
        self._found: Reading | None = None

    def rewrite(self) -> RecognisedReading:
        """Return the rewritten function, and what it reads."""
        node = self._parse()
        node.body = self._rewrite_block(node.body)
        if self._found is None:
            raise NotRecognisedError("; ".join(self._reasons) or f"{self._function.__qualname__} returns no image")
        return RecognisedReading(self._compile(node), self._found)

    def _parse(self) -> ast.FunctionDef:
        """Return the definition in its file; a lambda becomes one."""
        code = self._function.__code__
        try:
            tree = ast.parse("".join(inspect.findsource(code)[0]))
        except (OSError, SyntaxError, TypeError):
            raise NotRecognisedError(f"the source of {self._function.__qualname__} cannot be read") from None
        kind = ast.Lambda if code.co_name == "<lambda>" else ast.FunctionDef
        found = [node for node in ast.walk(tree) if isinstance(node, kind) and node.lineno == code.co_firstlineno]
        if len(found) != 1:
            raise NotRecognisedError(f"line {code.co_firstlineno} defines several functions, or one with a decorator")
        node, made = found[0], ast.parse("def read(): pass").body[0]
        assert isinstance(made, ast.FunctionDef)
        made.args = node.args
        made.body = node.body if isinstance(node, ast.FunctionDef) else [ast.copy_location(ast.Return(node.body), node)]
        return made

    def _compile(self, node: ast.FunctionDef) -> Callable[..., object]:
        node.args.defaults, node.args.kw_defaults = [], [None] * len(node.args.kwonlyargs)
        module = ast.parse(f"def outer({', '.join(self._needed)}):\n    return read")
        cast("ast.FunctionDef", module.body[0]).body.insert(0, node)
        made: dict[str, Callable[..., types.FunctionType]] = {}
        flags = __future__.annotations.compiler_flag  # annotations are not run
        code = compile(ast.fix_missing_locations(module), self._function.__code__.co_filename, "exec", flags)
        exec(code, self._function.__globals__, made)  # noqa: S102  # the user's own function, without its reading
        function = made["outer"](*self._needed.values())
        function.__defaults__, function.__kwdefaults__ = self._function.__defaults__, self._function.__kwdefaults__
        return function

    def _refuse(self, node: ast.AST, why: object) -> NotRecognisedError:
        line, file = getattr(node, "lineno", "?"), Path(self._function.__code__.co_filename).name
        return NotRecognisedError(f"line {line} of {file}, {ast.unparse(node)[:80]!r}: {why}")

    # values that are known without running the code

    def _resolve(self, node: ast.AST | None) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        if not isinstance(node, ast.Attribute):
            return self._values.get(node.id, _UNKNOWN) if isinstance(node, ast.Name) else _UNKNOWN
        owner = self._resolve(node.value)
        if owner is self._owner is not None:
            own = getattr(owner, "__dict__", {})
            found = own.get(node.attr, inspect.getattr_static(type(owner), node.attr, _UNKNOWN))
            is_method = node.attr not in own and isinstance(found, types.FunctionType)
            return types.MethodType(found, owner) if is_method else found
        return getattr(owner, node.attr, _UNKNOWN) if isinstance(owner, types.ModuleType | type) else _UNKNOWN

    def _decide(self, test: ast.expr) -> bool | None:
        """Whether a condition on attributes of the dataset holds; None if it is about something else."""
        for part in ast.walk(test):
            is_value = isinstance(part, ast.Name | ast.Attribute)
            if isinstance(part, ast.Call | ast.Subscript) or (is_value and self._resolve(part) is _UNKNOWN):
                return None
        return bool(eval(compile(ast.Expression(test), "<condition>", "eval"), self._values))  # noqa: S307  # names only

    # statements

    def _rewrite_block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        block = ast.Module([*body, ast.Pass()], [])
        super().generic_visit(block)
        return block.body

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Refuse an image inside a node that is not known, and one that is read or replaced in a branch or a loop."""
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and ast.unparse(node).endswith(_CHECKS):
            return node  # the source is not None either
        before = dict(self._readings), self._found
        super().generic_visit(node)
        if not self._marks.keys().isdisjoint(ast.iter_child_nodes(node)):
            raise self._refuse(node, _UNKNOWN_USE)
        if before != (self._readings, self._found):
            raise self._refuse(node, "the image is read or returned, or its name is used again, in a branch or a loop")
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Keep the branch that is taken, if only attributes of the dataset decide."""
        decided = self._decide(node.test)
        if decided is None:
            return self.generic_visit(node)
        return self._rewrite_block(node.body if decided else node.orelse)

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.AST]:
        """Let ``with open(path, "rb") as file`` give the path the name of the file."""
        item = node.items[0]
        item.context_expr = value = self.visit(item.context_expr)
        if value not in self._marks or len(node.items) > 1 or not isinstance(item.optional_vars, ast.Name):
            return self.generic_visit(node)
        assigned = self.visit_Assign(ast.copy_location(ast.Assign([item.optional_vars], value), node))
        return [assigned, *self._rewrite_block(node.body)]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Note what a local name stands for."""
        node.value = self.visit(node.value)
        target, value = node.targets[0], node.value
        if len(node.targets) > 1 or not isinstance(target, ast.Name):
            return self.generic_visit(node)
        self._readings.pop(target.id, None)
        if value in self._marks:
            self._readings[target.id] = self._marks[value]
        return node

    def visit_Return(self, node: ast.Return) -> ast.Return:
        """Find the image in what is returned."""
        parts = [self.visit(each) for each in getattr(node.value, "elts", [node.value or ast.Constant(None)])]
        if [part in self._marks for part in parts] != self._wanted or self._found is not None:
            what = "an image that a known call reads" + ", and a target" * (len(self._wanted) - 1)
            raise self._refuse(node, "; ".join(self._reasons) or f"one statement must return {what}")
        self._found = self._marks[parts[0]].check_ready()
        node.value = ast.Tuple(parts, ast.Load()) if parts[1:] else parts[0]
        return node

    # expressions

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Mark a name of the image; where it is changed otherwise than by an assignment, forget it."""
        if isinstance(node.ctx, ast.Load):
            return self._mark(node, self._readings.get(node.id))
        self._readings.pop(node.id, None)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Follow the image through a call."""
        if node in self._marks:  # seen before
            return node
        called = self._resolve(node.func)
        node.args[:1] = [self.visit(each) for each in node.args[:1]]
        first, named = node.args[0] if node.args else None, [each.value for each in node.keywords]
        others = [*node.args[1:], *named]
        if called is _UNKNOWN and isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
            if node.func.value in self._marks:
                first, others, called = node.func.value, [*node.args, *named], node.func.attr
        reading = None if first is None else self._marks.get(first)
        begins = any(row[0] == _find_name(called) and row[1].startswith("path") for row in _CALLS)
        is_text = called is open and [self._resolve(each) for each in others] != ["rb"]  # a file of something else
        if first is None or (reading is None and (not begins or is_text)):
            return self._call_loader(node, called) or self.generic_visit(node)
        try:
            if _find_name(called):
                return self._mark(first, (reading or Reading()).after(called, [self._resolve(each) for each in others]))
            if reading is not None and not others and callable(called):
                return self._mark(first, replace(reading.check_ready(), steps=(*reading.steps, called)))
        except NotRecognisedError as error:
            raise self._refuse(node, error) from None
        raise self._refuse(node, _UNKNOWN_USE)

    def _call_loader(self, node: ast.Call, called: object) -> ast.AST | None:
        """A call of the user's own function with a path; None if it reads no image that is recognised."""
        function = getattr(called, "__func__", called)
        if not isinstance(function, types.FunctionType) or not is_user_code(function) or len(node.args) != 1:
            return None
        try:
            found = _Rewriter(function, None if function is called else self._owner).rewrite()
        except NotRecognisedError as error:
            self._reasons.append(str(error))
            return None
        name = f"_find_source_{len(self._needed)}"
        own = () if function is called else (self._owner,)
        self._needed[name] = functools.partial(found.find_source, *own)
        node.func = ast.copy_location(ast.Name(name, ast.Load()), node.func)
        return self._mark(node, found.reading)

    def _mark(self, node: ast.expr, reading: Reading | None) -> ast.expr:
        if reading is not None:
            self._marks[node] = reading
        return node
