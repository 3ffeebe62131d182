"""The rules that hold the house together and that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def requirements(name: str) -> list[str]:
    """The lines of a requirements file that name a package."""
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-", " "))]


def test_dependencies_are_pinned_as_the_package_declares_them() -> None:
    """What is tested is what is installed: requirements/runtime.in repeats the dependencies in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert sorted(requirements("runtime.in")) == sorted(project["dependencies"])


PINS = [
    "uv.txt",
    "dev.txt",
    "torch.txt",
    "torchvision.txt",
    "frameworks.txt",
    "clients.txt",
    "composer.txt",
    "types.txt",
]


@pytest.mark.parametrize("name", PINS)
def test_pins_carry_hashes_and_no_index(name: str) -> None:
    """Every pinned package is exact and hashed, and no address of a package index is in the files."""
    text = (ROOT / "requirements" / name).read_text()

    blocks = re.split(r"\n(?=[a-zA-Z0-9])", text)

    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
    for block in blocks[1:]:
        assert re.match(r"[a-z0-9._-]+==\S+", block), block.splitlines()[0]
        assert "--hash=sha256:" in block, block.splitlines()[0]


def test_the_libraries_in_the_documentation_have_the_pinned_versions() -> None:
    """The table of libraries in docs/from-torch.md names the versions that `make test-clients` installs."""
    page = (ROOT / "docs" / "from-torch.md").read_text()
    files = ("clients.txt", "composer.txt", "torchvision.txt")
    pins = {line.split(" ")[0] for name in files for line in requirements(name) if "==" in line}

    rows = re.findall(r"^\| `([a-z-]+)`[^|]*\| ([0-9.]+) \|", page, re.MULTILINE)

    assert len(rows) > 10
    assert [f"{name}=={version}" for name, version in rows if f"{name}=={version}" not in pins] == []


def test_data_files_are_in_the_wheel() -> None:
    """What is read from the package at run time, such as kernels and pages of errors, is in it and not excluded."""
    excluded = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["exclude"]
    suffixes = {".cu", ".h", ".md", ".txt", ".html", ".css", ".js"}
    files = [path.relative_to(ROOT) for path in (ROOT / "penstock").rglob("*") if path.suffix in suffixes]

    some = {"decode.cu", "grid.h", "corrupt-record.md", "training.py.txt", "index.html", "main.js"}
    assert {path.name for path in files} >= some
    assert [path for path in files if any(path.match(pattern) for pattern in excluded)] == []


def test_import_is_light() -> None:
    """`import penstock` imports numpy and nothing heavier, and starts no thread."""
    code = (
        "import sys, threading, penstock\n"
        "heavy = {'torch', 'PIL', 'lmdb', 'msgpack', 'typer', 'rich', 'torchvision', 'multiprocessing.pool', "
        "'importlib.metadata', 'starlette', 'uvicorn', 'penstock.viewer'}\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


def test_nothing_tells_to_install_the_namesake() -> None:
    """The distribution is `penstock-data`; a `penstock` that pip would find is a stranger's."""
    end = r"(?=$|[\s'\"`=<>~!;,.])"
    namesake = re.compile(rf"pip install(?: [^\s'\"`]+)* ['\"]?penstock{end}|\bpenstock\[[a-z]", re.MULTILINE)
    folders = ("penstock", "docs", "tests", "benches", "scripts", "changelog.d", "examples")
    found = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in {".md", ".py", ".sh"}]
    paths = [*ROOT.glob("*.md"), ROOT / "pyproject.toml", *found]

    texts = {path: path.read_text() for path in paths if path != Path(__file__)}
    wrong = [f"{path.relative_to(ROOT)}: {line[0]}" for path, text in texts.items() for line in namesake.finditer(text)]

    assert namesake.search("pip install 'penstock[torch]'")
    assert namesake.search("uv pip install penstock")
    assert not namesake.search("pip install 'penstock-data[torch]' penstock_data-0.1.0-cp311-abi3-linux_x86_64.whl")
    assert wrong == []


@dataclass
class Found:
    """What the tests below look for in the package, which is parsed once."""

    finalisers: list[ast.FunctionDef] = field(default_factory=list)
    classes: dict[str, list[str]] = field(default_factory=dict)
    """The modules that have a class of a name."""
    readers: list[str] = field(default_factory=list)
    """The modules that name ``_current_frames``."""


@pytest.fixture(scope="module")
def found() -> Found:
    """What is found in all modules."""
    found = Found()
    for path in sorted((ROOT / "penstock").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.classes.setdefault(node.name, []).append(name)
            elif isinstance(node, ast.FunctionDef) and node.name == "__del__":
                found.finalisers.append(node)
            elif isinstance(node, ast.Attribute) and node.attr == "_current_frames":
                found.readers.append(name)
    return found


def test_finalisers_ask_first_whether_the_interpreter_ends(found: Found) -> None:
    """At exit, modules are emptied in any order: `sys.is_finalizing` is a default argument, and asked first."""
    finalisers = found.finalisers

    assert finalisers
    for finaliser in finalisers:
        assert [ast.unparse(value) for value in finaliser.args.defaults] == ["sys.is_finalizing"]
        assert isinstance(finaliser.body[0], ast.If)
        assert ast.unparse(finaliser.body[0].test).removeprefix("not ").startswith("is_finalizing()")


def test_every_changelog_fragment_has_a_known_kind() -> None:
    """A fragment is named `<what>.<kind>.md`, so that the release script finds its section; there may be none."""
    fragment = re.compile(r"[a-z0-9-]+\.(feature|fix|performance|docs|removal|misc)\.md")
    others = {"README.md", "template.md.jinja"}

    names = {path.name for path in (ROOT / "changelog.d").iterdir()}

    assert names >= others
    assert [name for name in names - others if not fragment.fullmatch(name)] == []
    assert not fragment.fullmatch("faster.md")
    assert not fragment.fullmatch("faster.speed.md")


def test_decisions_are_numbered_without_gaps() -> None:
    """Decision records count 0001, 0002, ... and each has the four parts."""
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))

    parts = {page.name: re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE) for page in pages}

    assert [page.name[:4] for page in pages] == [f"{i:04d}" for i in range(1, len(pages) + 1)]
    for name, found in parts.items():
        assert found == ["Context", "Decision", "Rejected", "Consequences"], name


def test_a_class_name_occurs_once(found: Found) -> None:
    """A name in a traceback or a search leads to one class; those of torch are also those of `penstock.torch`."""
    torch_names = {"ConcatDataset", "DataLoader", "StackDataset", "StoreDataset", "Subset"}

    repeated = {name: places for name, places in found.classes.items() if len(places) > 1}

    assert {name: places for name, places in repeated.items() if name not in torch_names} == {}
    assert {sum(each.startswith("penstock/torch/") for each in places) for places in repeated.values()} == {1}


def test_stacks_are_read_by_one_function(found: Found) -> None:
    """Elsewhere a call of ``sys._current_frames`` may wait for ever: see :mod:`penstock.workers.stack_frames`."""
    assert found.readers == ["penstock/workers/stack_frames.py"]


def test_each_module_is_of_the_core_or_a_plug_in() -> None:
    """The contract of import-linter names all of them; what it cannot see is that no `__init__` of both imports one."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each["type"] == "forbidden")
    plugins = contract["forbidden_modules"]
    divided = {name.rpartition(".")[0] for name in plugins}
    files = [file for name in divided for file in (ROOT / name.replace(".", "/")).glob("*")]
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if _is_module(file)}

    imported = {each for name in [*divided, "penstock.torch"] for each in _list_imports(name)}

    assert divided == {"penstock", "penstock.datasets", "penstock.stores"}
    assert sorted([*contract["source_modules"], *plugins]) == sorted(names - divided)
    assert contract["ignore_imports"] == ["penstock.torch -> penstock.doctor"]
    assert "penstock.stores.location.Location" in imported
    assert [name for name in imported if name.startswith(tuple(plugins))] == []


def _is_module(file: Path) -> bool:
    is_python = file.suffix == ".py" and not file.name.startswith("__")
    return is_python or (file / "__init__.py").exists()


def _list_imports(package: str) -> list[str]:
    """The names that the `__init__` of a package imports, in functions too; not those for type checkers alone."""
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text())
    run = [part for part in tree.body if not (isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING")]
    nodes = [node for part in run for node in ast.walk(part) if isinstance(node, ast.ImportFrom)]
    return [f"{node.module}.{alias.name}" for node in nodes for alias in node.names]
