"""What a release is made of: one version, its section of the changelog, licences of what is linked, what uploads."""

from __future__ import annotations

import importlib
import json
import re
import shutil
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


FAKES = {
    "bin/maturin": "mkdir -p dist; tar -cz --sort=name --mtime=@0 --xform s,^,p/, -f dist/penstock-1.2.0.tar.gz src",
    "bin/python": "true",
    "bin/towncrier": "echo towncrier $*",
    "scripts/wheels_env.sh": 'PATH="$PWD/bin:$PATH"',
    "scripts/wheels.sh": 'cd "${1:-.}"; rm -rf dist; mkdir dist; for n in 1 2 3 4; do cp src/core dist/p-$n.whl; done',
    "src/core": "",
    "changelog.d/README.md": "",
    "changelog.d/template.md.jinja": "",
    "Cargo.toml": '[workspace.package]\nversion = "1.2.0"\n',
    "CHANGELOG.md": "# Changes\n\n## 1.2.0 (2030-01-01)\n\n### New\n\n- All.\n\n## 1.1.0 (2029-01-01)\n\n- First.\n",
    ".gitignore": "dist\n",
}
"""A repository whose programs build four wheels and an sdist in no time."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with scripts/release.sh and scripts/changelog.sh as they are, and all that they call replaced."""
    for name, text in FAKES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n" if path.parent.name in {"bin", "scripts"} else text)
        path.chmod(0o755)
    for name in ("release.sh", "changelog.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    commit(tmp_path)
    return tmp_path


def commit(repository: Path) -> None:
    """Commit all files."""
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "Release"]):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *command], cwd=repository, check=True)


def run(repository: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of its scripts to its end."""
    command = [str(repository / "scripts" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("version", "message"), [("99.0", "as Cargo.toml says, got 99.0"), ("1.2.0", "has a section for 1.2.0 already")]
)
def test_a_section_of_another_version_and_a_second_one_are_refused(
    repository: Path, version: str, message: str
) -> None:
    """Cargo.toml has the next version before its section is written, once."""
    done = run(repository, "changelog.sh", version)

    assert done.returncode == 1
    assert message in done.stderr
    assert "towncrier" not in done.stdout


def test_the_section_of_a_version_is_written_when_it_is_named(repository: Path) -> None:
    """Without a version it is shown only."""
    (repository / "Cargo.toml").write_text('[workspace.package]\nversion = "1.3.0"\n')

    shown, written = run(repository, "changelog.sh"), run(repository, "changelog.sh", "1.3.0")

    assert shown.stdout == "towncrier build --draft --version 1.3.0\n"
    assert written.stdout == "towncrier build --yes --version 1.3.0\n"


def test_a_release_is_ready_to_upload(repository: Path) -> None:
    """Beside wheels and sdist there are their checksums and the notes; the commands that upload are printed."""
    done = run(repository, "release.sh")

    dist = repository / "dist"
    assert done.returncode == 0, done.stderr
    names = [line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert names == [*(f"p-{number}.whl" for number in range(1, 5)), "penstock-1.2.0.tar.gz"]
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=True)
    assert (dist / "RELEASE-NOTES.md").read_text() == "### New\n\n- All.\n"
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True)
    commands = [line.strip() for line in done.stdout.partition("To upload")[2].splitlines()]
    assert f'git tag --annotate v1.2.0 --message "penstock 1.2.0" {head.stdout.strip()}' in commands
    assert ".venv-wheels/bin/uv publish dist/*.whl dist/*.tar.gz" in commands


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("changelog.d/fast.feature.md", "Fast.", "must have no fragments, has fast.feature.md;"),
        ("Cargo.toml", '[workspace.package]\nversion = "1.2.1"\n', "no section for 1.2.1"),
        ("CHANGELOG.md", "## 1.2.0 (2030-01-01)\n\n## 1.1.0 (2029-01-01)\n\n- First.\n", "no section for 1.2.0"),
        ("CHANGELOG.md", "## 1.2.0.1 (2030-01-01)\n\n- New.\n", "no section for 1.2.0"),
        ("scripts/wheels.sh", "mkdir dist; touch dist/p-1.whl", "a release has 4 wheels, dist/ has 1: dist/p-1.whl"),
    ],
)
def test_what_is_not_ready_is_refused(repository: Path, name: str, text: str, message: str) -> None:
    """A fragment that is left, a version without a section, an empty section, and a wheel that is missing are named."""
    (repository / name).write_text(text)
    commit(repository)

    done = run(repository, "release.sh")

    assert done.returncode == 1
    assert message in done.stderr
    assert not (repository / "dist" / "SHA256SUMS").exists()


@pytest.mark.parametrize("name", ["src/core", "src/new"])
def test_what_is_not_committed_is_refused(repository: Path, name: str) -> None:
    """A changed file and a new one would be built, and be in no commit."""
    (repository / name).write_text("changed")

    done = run(repository, "release.sh")

    assert done.returncode == 1
    assert "must have no changes that are not committed" in done.stderr
    assert "src/" in done.stderr
    assert not (repository / "dist").exists()


def test_a_second_build_that_differs_is_refused(repository: Path) -> None:
    """A wheel that has the path of its folder in it cannot be built again by others."""
    with (repository / "scripts" / "wheels.sh").open("a") as script:
        script.write("pwd >>dist/p-3.whl\n")
    commit(repository)

    done = run(repository, "release.sh")

    assert done.returncode == 1
    assert "dist/p-3.whl" in done.stdout + done.stderr
    assert not (repository / "dist" / "SHA256SUMS").exists()
