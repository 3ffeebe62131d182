"""What a release is made of: one version, fragments that have a section, licences of everything that is linked."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
LICENSED = [{"license": {"id": "MIT"}}]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of scripts/ can be imported, as they import one another."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


@pytest.fixture
def check_wheels(scripts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/check_wheels.py, for a repository in a temporary folder whose native module links one crate."""
    module = importlib.import_module("check_wheels")
    (tmp_path / "dist").mkdir()
    page = tmp_path / "penstock" / "viewer" / "page"
    page.mkdir(parents=True)
    (page / "index.html").touch()
    (tmp_path / "THIRD-PARTY-LICENSES.txt").write_text("crate 1.0 (MIT)\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "find_linked_crates", lambda: [{"name": "crate", "version": "1.0"}])
    return module


def write_wheel(
    folder: Path, components: list[dict[str, object]], licenses: str = "crate 1.0 (MIT)\n", page: str = "index.html"
) -> None:
    """Write a wheel that has nothing but what is checked."""
    with zipfile.ZipFile(folder / "dist" / "penstock_data-0.0-cp311-abi3-any.whl", "w") as wheel:
        wheel.writestr(f"penstock/viewer/page/{page}", "")
        wheel.writestr("p.dist-info/sboms/components.cdx.json", json.dumps({"components": components}))
        wheel.writestr("p.dist-info/licenses/THIRD-PARTY-LICENSES.txt", licenses)


def component(name: str, version: str, licenses: list[dict[str, dict[str, str]]]) -> dict[str, object]:
    """A component as CycloneDX lists it."""
    return {"name": name, "version": version, "licenses": licenses}


def test_the_version_is_in_one_place() -> None:
    """Cargo.toml has it; both crates and the distribution take it from there."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    crates = [tomllib.loads((ROOT / "native" / name / "Cargo.toml").read_text()) for name in ("core", "python")]
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]

    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", version)
    assert "version" not in project
    assert "version" in project["dynamic"]
    assert [crate["package"]["version"] for crate in crates] == [{"workspace": True}] * 2
    assert {crate["version"] for crate in locked if crate["name"].startswith("penstock-")} == {version}


def test_a_changelog_of_another_version_is_refused() -> None:
    """Nothing is written unless VERSION is that of Cargo.toml."""
    before = (ROOT / "CHANGELOG.md").read_bytes()

    done = subprocess.run(
        [ROOT / "scripts" / "changelog.sh", "99.0"], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert "as Cargo.toml says, got 99.0" in done.stderr
    assert (ROOT / "CHANGELOG.md").read_bytes() == before


def test_each_kind_of_fragment_has_a_section() -> None:
    """changelog.d/README.md lists the kinds that towncrier knows, and CHANGELOG.md has the mark where it writes."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "changelog.d" / "README.md").read_text(), re.MULTILINE)

    assert sorted(kind["directory"] for kind in settings["type"]) == sorted(listed)
    assert settings["start_string"] in (ROOT / settings["filename"]).read_text()
    assert (ROOT / settings["template"]).exists()


def test_licences_of_what_is_linked_fit_the_lock_file(scripts: None) -> None:
    """THIRD-PARTY-LICENSES.txt and native/components.cdx.json are those that scripts/third_party.py writes."""
    third_party = importlib.import_module("third_party")

    crates = third_party.find_linked_crates()

    assert {"libwebp-sys", "pyo3"} <= {crate["name"] for crate in crates}
    assert not {"syn", "cc"} & {crate["name"] for crate in crates}
    assert third_party.describe_licenses(crates) == third_party.LICENSES.read_text()
    assert third_party.describe_components(crates) == third_party.COMPONENTS.read_text()


def test_a_crate_without_a_licence_is_refused(scripts: None, tmp_path: Path) -> None:
    """Its text cannot travel with a wheel before someone has found it."""
    third_party = importlib.import_module("third_party")
    crate = {
        "name": "crate",
        "version": "1.0",
        "license": "MIT",
        "authors": [],
        "manifest_path": tmp_path / "Cargo.toml",
    }

    with pytest.raises(third_party.ThirdPartyError, match=r"crate 1\.0 has no licence file"):
        third_party.read_license(crate)


def test_a_complete_wheel_is_accepted(check_wheels: ModuleType, tmp_path: Path) -> None:
    """Every linked crate and libwebp are listed, each with a licence."""
    write_wheel(tmp_path, [component("crate", "1.0", LICENSED), component("libwebp", "1.6.0", LICENSED)])

    check_wheels.check_contents()


@pytest.mark.parametrize(
    ("components", "licenses", "message"),
    [
        ([component("libwebp", "1.6.0", LICENSED)], "crate 1.0 (MIT)\n", r"lacks \['crate 1\.0'\]"),
        ([component("crate", "1.0", LICENSED)], "crate 1.0 (MIT)\n", "lacks libwebp"),
        (
            [component("crate", "1.0", []), component("libwebp", "1.6.0", LICENSED)],
            "crate 1.0 (MIT)\n",
            r"without a licence: \['crate 1\.0'\]",
        ),
        (
            [component("crate", "1.0", LICENSED), component("libwebp", "1.6.0", LICENSED)],
            "crate 0.9 (MIT)\n",
            "must have THIRD-PARTY-LICENSES",
        ),
    ],
)
def test_an_incomplete_wheel_is_refused(
    check_wheels: ModuleType, tmp_path: Path, components: list[dict[str, object]], licenses: str, message: str
) -> None:
    """A component that is not listed, one without a licence, and licences of other versions are named."""
    write_wheel(tmp_path, components, licenses)
    error = sys.modules["checking"].CheckError

    with pytest.raises(error, match=message):
        check_wheels.check_contents()


def test_a_wheel_without_the_page_of_the_viewer_is_refused(check_wheels: ModuleType, tmp_path: Path) -> None:
    """Its files are no modules, and are named."""
    parts = [component("crate", "1.0", LICENSED), component("libwebp", "1.6.0", LICENSED)]
    write_wheel(tmp_path, parts, page="other.html")

    with pytest.raises(sys.modules["checking"].CheckError, match=r"lacks \['penstock/viewer/page/index.html'\]"):
        check_wheels.check_contents()
