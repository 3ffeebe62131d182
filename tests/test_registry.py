"""What is missing is named with the command that installs it; a plug-in that is broken, with its distribution."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.errors import ArgumentError, OptionalPackageError
from penstock.registry import Registry, require

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("extra", "command"),
    [("torch", "pip install 'penstock-data[torch]'"), (None, "pip install no_such_package")],
)
def test_a_missing_package_comes_with_the_command_that_installs_it(extra: str | None, command: str) -> None:
    """The extra is that of the distribution `penstock-data`; without an extra, the package itself is named."""
    with pytest.raises(OptionalPackageError) as caught:
        require("no_such_package.inside", extra=extra, purpose="for this test")

    assert str(caught.value) == f"the package 'no_such_package' is needed for this test; install it with: {command}"


def test_every_extra_that_a_message_names_is_declared() -> None:
    """`require(..., extra=...)` names an extra of pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    named = {
        name for path in (ROOT / "penstock").rglob("*.py") for name in re.findall(r'extra="(\w+)"', path.read_text())
    }

    assert named
    assert named <= set(extras)


def test_extras_by_task_are_of_those_by_library() -> None:
    """Each names extras that are declared, `all` has every package but the demo's, and the page has every extra."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def list_packages(name: str) -> set[str]:
        inner = [re.fullmatch(r"penstock-data\[(.*)\]", each) for each in extras[name]]
        return {
            package
            for requirement, found in zip(extras[name], inner, strict=True)
            for package in ({requirement} if found is None else set().union(*map(list_packages, found[1].split(","))))
        }

    page = (ROOT / "docs" / "start.md").read_text()
    by_name = {name: list_packages(name) for name in extras}

    assert by_name["all"] == set().union(*(by_name[name] for name in extras if name != "demo"))
    assert by_name["all-readers"] > by_name["hdf5"] | by_name["remote"]
    assert by_name["viewer"] == by_name["view"] != set()
    assert [name for name in extras if name != "view" and f"`{name}`" not in page] == []


LINES = """
from penstock import Field, Record, Schema
from penstock.stores.container import ContainerStore


class LinesStore(ContainerStore):
    kind = "lines"
    suffixes = (".lines",)
    _schema = Schema({"label": Field("int")})

    @classmethod
    def recognises(cls, path):
        return path.endswith((".lines", ".folder"))

    def open_files(self):
        return self.location.local_path.read_text().splitlines()

    def __len__(self):
        return len(self.open_files())

    def read_record(self, opened, index):
        return Record(index, str(index), {"label": int(opened[index])})
"""


def install(folder: Path, name: str, entries: str, group: str = "penstock.stores") -> None:
    """Put a distribution with entry points into a folder of modules."""
    place = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that are imported."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "lines_store.py").write_text(LINES)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def make_registry() -> Registry:
    """A registry that has one entry, and takes others from distributions."""
    registry = Registry("store", "penstock.stores", "penstock.stores.base:Store")
    registry.register("files", "penstock.stores.images.store:FilesStore")
    return registry


def test_another_distribution_adds_an_entry(modules: Path) -> None:
    """Its entry points come after what is registered, in lists too."""
    install(modules, "lines-store", "lines = lines_store:LinesStore")
    registry = make_registry()

    assert list(registry) == ["files", "lines"]
    assert registry.get("lines").kind == "lines"
    with pytest.raises(ArgumentError, match="unknown store 'absent'; known: files, lines"):
        registry.get("absent")


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("absent_module:Store", "ModuleNotFoundError"),
        ("lines_store:Absent", "AttributeError"),
        ("lines_store:Field", "TypeError: it must be a subclass of Store"),
    ],
)
def test_a_broken_plug_in_is_named_and_hides_nothing(modules: Path, target: str, what: str) -> None:
    """The error names the distribution; where all entries are tried, it is a warning."""
    install(modules, "lines-store", f"lines = {target}")
    registry = make_registry()

    assert registry.get("files").kind == "files"
    with pytest.raises(OptionalPackageError, match=f"store 'lines' of the distribution lines-store 1.0 .*{what}"):
        registry.get("lines")
    with pytest.warns(UserWarning, match=r"distribution lines-store 1\.0"):
        assert registry.try_get("lines") is None


def test_a_plug_in_does_not_replace_an_entry(modules: Path) -> None:
    """A name that is taken stays that of its first owner; the other is named in a warning."""
    install(modules, "first-store", "lines = lines_store:LinesStore")
    install(modules, "second-store", "files = lines_store:LinesStore\nlines = lines_store:Absent")
    registry = make_registry()

    with pytest.warns(UserWarning, match="ignored") as warned:
        assert registry.get("lines").kind == "lines"

    texts = sorted(str(each.message) for each in warned)
    assert ["penstock has one" in texts[0], "first-store 1.0 has one" in texts[1]] == [True, True]
    assert registry.get("files").kind == "files"


def test_stores_of_another_distribution_are_opened_and_written(modules: Path, tmp_path: Path) -> None:
    """They are found by path and by scheme; entry points are read only for what no kind of penstock recognises."""
    install(modules, "lines-store", "lines = lines_store:LinesStore\nbroken = absent_module:Store")
    (tmp_path / "a.lines").write_text("3\n4")
    (tmp_path / "b.folder").mkdir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"no image is decoded")
    program = (
        "import sys, warnings\n"
        f"sys.path.insert(0, {str(modules)!r})\n"
        "import penstock as ps\n"
        "from penstock import stores\n"
        "ps.open('photos')\n"
        "assert 'importlib.metadata' not in sys.modules\n"
        "warnings.simplefilter('ignore')\n"
        "print(ps.open('a.lines')[1].fields['label'], len(ps.open('lines://a.lines')))\n"
        "print(stores.find('b.folder')[0].kind, stores.find('b.lines', to_write=True)[0].kind)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.stdout.split() == ["4", "2", "lines", "lines"], done.stderr


def test_ops_and_annotation_formats_of_another_distribution_are_found(modules: Path) -> None:
    """An op is a name of `penstock.transforms`, a format a name for `format=`."""
    install(modules, "own-ops", "Tilt = own_ops:Tilt", "penstock.ops")
    install(modules, "own-formats", "names = own_ops:NamesFormat", "penstock.annotations")
    (modules / "own_ops.py").write_text(
        "from penstock.annotations.base import AnnotationFormat\n"
        "from penstock.transforms import Op\n"
        "class Tilt(Op): pass\n"
        "class NamesFormat(AnnotationFormat): pass\n"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(modules)!r})\n"
        "from penstock import annotations, transforms as T\n"
        "print(T.Tilt.__name__, annotations.FORMATS.get('names').__name__)\n"
        "print(list(annotations.FORMATS)[-1], hasattr(T, 'Absent'))\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout.split() == ["Tilt", "NamesFormat", "names", "False"], done.stderr
