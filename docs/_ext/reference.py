"""The pages of the reference: for each public name, each package, each task, and the native core.

Public names are those in ``__all__`` of the packages below. What a page says comes from the docstring; its example from
``docs/reference/examples``, where each file is a task, each heading a name, and each block of code is run by
``tests/site``. Pages are written to ``docs/reference/api``, which git ignores, before Sphinx reads them.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "PACKAGES",
    "Example",
    "PublicName",
    "find_public_names",
    "find_stub_source",
    "is_known",
    "list_packages",
    "read_examples",
    "write_pages",
]

PACKAGES: Final = {
    "penstock": "Stores, datasets, samplers and the loader, whose batches are NumPy arrays; and all errors.",
    "penstock.torch": "The names, arguments and semantics of `torch.utils.data`, whose batches are tensors.",
    "penstock.transforms": "Decoding, and ops whose randomness belongs to the sample.",
    "penstock.annotations": "Annotations of images, read from the formats that people have.",
    "penstock.doctor": "What is slow in a training script, and what is wrong in its loader.",
    "penstock.sheets": "What a store contains: numbers, contact sheets, drawn samples.",
    "penstock.pack": "What packing, converting, copying, indexing and verifying return.",
    "penstock.simulation": "What a simulated job returns.",
    "penstock.loader": "What a loader says of itself.",
}
"""Public packages. A name that several have is described for the first of them."""

EXAMPLES: Final = Path(__file__).resolve().parent.parent / "reference" / "examples"
IMPORTS: Final = {
    "np": "import numpy as np",
    "torch": "import torch",
    "ps": "import penstock as ps",
    "pt": "import penstock.torch as pt",
    "T": "from penstock import transforms as T",
    "annotations": "from penstock import annotations",
    "doctor": "from penstock import doctor",
    "Path": "from pathlib import Path",
}
"""Imports that are put before an example that uses their name."""


@dataclass(frozen=True)
class PublicName:
    """A name that users import: where from, its object, and the page that describes it."""

    package: str
    name: str
    value: object
    home: str
    """The full name under which it is described: that of the first package that has it."""

    @property
    def full(self) -> str:
        """The package and the name."""
        return f"{self.package}.{self.name}"

    @property
    def kind(self) -> str:
        """The object type of Sphinx: ``class``, ``exception``, ``function`` or ``data``."""
        if isinstance(self.value, type):
            return "exception" if issubclass(self.value, BaseException) else "class"
        return "function" if inspect.isroutine(self.value) else "data"

    @property
    def is_of_torch(self) -> bool:
        """Whether it is torch's own object, which torch's documentation describes."""
        return str(getattr(self.value, "__module__", "")).startswith("torch.")

    @property
    def summary(self) -> str:
        """The first sentence of its docstring, as Markdown."""
        if self.kind == "data":
            return describe_value(self)
        return to_markdown((inspect.getdoc(self.value) or "").partition("\n\n")[0].replace("\n", " "))


@dataclass(frozen=True)
class Example:
    """One example: the task that it belongs to, and its code with the imports that it needs."""

    task: str
    code: str


@functools.cache
def find_public_names() -> tuple[PublicName, ...]:
    """All public names, package by package; a name that several packages have occurs in each."""
    found: list[PublicName] = []
    homes: dict[int, str] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__, key=lambda each: (each.lower(), each)):
            value = getattr(module, name)
            home = homes.setdefault(id(value), f"{package}.{name}")
            found.append(PublicName(package, name, value, home))
    return tuple(found)


def read_examples(folder: Path = EXAMPLES) -> dict[str, Example]:
    """The example of each name, in the order of tasks.

    Raises
    ------
    ValueError
        If a name has two examples, or a heading no block of code.
    """
    found: dict[str, Example] = {}
    for file in sorted(folder.glob("*.md")):
        title, *sections = re.split(r"^## ", file.read_text(), flags=re.MULTILINE)
        for section in sections:
            name, _, rest = section.partition("\n")
            block = re.search(r"```python\n(.*?)```", rest, re.DOTALL)
            if block is None or name in found:
                raise ValueError(f"{file.name}: {name} must have one heading and one block of code")
            found[name] = Example(title.split("\n", 1)[0].removeprefix("# ").strip(), add_imports(block[1]))
    return found


def add_imports(code: str) -> str:
    """The code after the imports of the names that it uses and does not import."""
    used = [
        line
        for name, line in IMPORTS.items()
        if re.search(rf"(?<![\w.\"']){name}[.(\[]", code) and f"{line}\n" not in code
    ]
    return "\n".join(used) + "\n\n" + code if used else code


def to_markdown(text: str) -> str:
    """A sentence of reStructuredText as Markdown: names of other objects become code."""
    text = re.sub(r":\w+:`(?:~[\w.]*\.)?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`").replace("|", r"\|")


def describe_value(public: PublicName) -> str:
    """One sentence for a name that is no class and no function: a constant, a registry, a type."""
    value = public.value
    if isinstance(value, tuple):
        return f"The constant `{value!r}`."
    if hasattr(value, "what") and hasattr(value, "register"):
        return f"The registered names, and what each stands for: {', '.join(f'`{name}`' for name in value)}."  # type: ignore[attr-defined]  # a Registry
    return f"The type `{value}`.".replace("|", r"\|")


# ------------------------------------------------------------------------------------------------ pages


def file_of(home: str) -> str:
    """The name of the file that describes a name; no two differ in case alone, which some file systems ignore."""
    twins = [each for each in find_public_names() if each.full == each.home and each.home.lower() == home.lower()]
    kind = next(each.kind for each in twins if each.home == home)
    return f"{home}-{kind}" if len(twins) > 1 else home


def write_pages(folder: Path) -> None:
    """Write every page of the reference below ``folder``; a file that is right already is not touched."""
    examples = read_examples()
    pages = {"by-task": page_of_tasks(examples), "native": NATIVE_PAGE}
    for public in find_public_names():
        if public.full == public.home:
            pages[file_of(public.home)] = page_of_name(public, examples)
    for position, package in enumerate(PACKAGES):
        pages[f"packages/{position:02}-{package}"] = page_of_package(package)
    for old in folder.rglob("*.md"):
        if old.relative_to(folder).with_suffix("").as_posix() not in pages and old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def page_of_name(public: PublicName, examples: Mapping[str, Example]) -> str:
    """The page of one name: what the docstring says, and an example."""
    lines = [f"# {public.full}", ""]
    if public.is_of_torch:
        kind = "class" if public.kind == "class" else "function"
        own = f"{getattr(public.value, '__module__', '')}.{public.name}"
        lines += ["```{eval-rst}", f".. py:{kind}:: {public.full}", "", f"   torch's own, ``{own}``: {public.name}", ""]
        lines[-2] = f"   This is torch's own {kind}, ``{own}``, under the name that ``torch.utils.data`` gives it."
        lines += ["```", ""]
    elif public.kind == "data":
        lines += ["```{eval-rst}", f".. py:data:: {public.full}", "```", "", public.summary, ""]
    else:
        lines += ["```{eval-rst}", f".. auto{public.kind}:: {public.full}{plain_signature(public)}", "```", ""]
    others = [f"`{each.full}`" for each in find_public_names() if each.home == public.full and each.full != public.full]
    if others:
        lines += [f"Also {' and '.join(others)}.", ""]
    example = examples.get(public.full)
    if example:
        lines += ["## Example", "", "```python", example.code.strip(), "```", ""]
        lines += [f"Task: [{example.task}](by-task.md#{slug(example.task)}).", ""]
    return "\n".join(lines)


def plain_signature(public: PublicName) -> str:
    """The parameters with their defaults, where overloads for type checkers would be shown; else nothing."""
    called = public.value.__init__ if isinstance(public.value, type) else public.value
    if not (callable(public.value) and inspect.isfunction(called) and typing.get_overloads(called)):
        return ""
    signature = inspect.signature(public.value)
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def page_of_package(package: str) -> str:
    """The page of one package: its docstring, and a table of its names."""
    names = [public for public in find_public_names() if public.package == package]
    lines = [f"# {package}", "", PACKAGES[package], "", "| name | what it is |", "|---|---|"]
    lines += [f"| [{public.name}](../{file_of(public.home)}.md) | {public.summary} |" for public in names]
    own = [
        f"{public.name} </docs/reference/api/{file_of(public.home)}>" for public in names if public.full == public.home
    ]
    lines += ["", "```{toctree}", ":hidden:", "", *own, "```", ""]
    return "\n".join(lines)


def page_of_tasks(examples: Mapping[str, Example]) -> str:
    """The index by task: every public name, under what it is used for."""
    summaries = {public.full: public for public in find_public_names()}
    lines = ["# By task", "", "Every public name, under what it is used for. Each page has an example that runs.", ""]
    task = ""
    for name, example in examples.items():
        if example.task != task:
            task = example.task
            lines += ["", f"## {task}", "", "| name | what it is |", "|---|---|"]
        lines.append(f"| [{name}]({file_of(name)}.md) | {summaries[name].summary} |")
    return "\n".join([*lines, ""])


def list_packages() -> str:
    """The tables of the front page of the reference: ways into it, and the public packages."""
    ways = [
        "| [By task](api/by-task.md) | every public name, under what it is used for |",
        "| [The command line](../command-line.md) | the command `penstock`, with all options |",
        "| [Native functions](api/native.md) | what the package calls, for those who read its source |",
    ]
    rows = [f"| [{p}](api/packages/{i:02}-{p}.md) | {text} |" for i, (p, text) in enumerate(PACKAGES.items())]
    table = ["| package | what it has |", "|---|---|", *rows]
    return "\n".join(["", "| way | what it has |", "|---|---|", *ways, "", "## Packages", "", *table, ""])


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


NATIVE_PAGE: Final = """# Native functions

The functions of `penstock._native`, which the package calls. They are **internal**: names and arguments may change in
any version. What they compute, and on which arrays, is described here for those who read or change the package. Type
checkers and editors read the same text from `penstock/_native.pyi`.

```{eval-rst}
.. automodule:: penstock._native
   :members:
   :undoc-members:
```
"""


def find_stub_source(module: str) -> tuple[str, dict[str, tuple[str, int, int]]] | None:
    """What stands for the source of the native module: its stub, and the lines of each name; None for other modules."""
    if module != "penstock._native":
        return None
    text = (Path(__file__).resolve().parents[2] / "penstock" / "_native.pyi").read_text()
    names = {
        node.name: ("class" if isinstance(node, ast.ClassDef) else "def", node.lineno, node.end_lineno or node.lineno)
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    return text, names


def is_known(target: str, context: tuple[str, str]) -> bool:
    """Whether a reference in a docstring names something that exists in penstock.

    Parameters
    ----------
    target : str
        The name, as it is written.
    context : (str, str)
        The module and the class in which it is written.
    """
    module, owner = context
    candidates = [target, f"{module}.{target}", f"{module}.{owner}.{target}"]
    return any(each.startswith("penstock.") and exists(each) for each in candidates)


@functools.cache
def exists(full: str) -> bool:
    """Whether a dotted name can be imported."""
    parts = full.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(value, part):
                return part in getattr(value, "__annotations__", {})
            value = getattr(value, part)
        return True
    return False
