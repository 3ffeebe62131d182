"""The set-up mends itself: what is done is known by stamps, what is missing is said in one sentence."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/setup.py as a module, for an empty repository in a temporary folder."""
    spec = importlib.util.spec_from_file_location("penstock_setup", ROOT / "scripts" / "setup.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    venv = tmp_path / ".venv"
    venv.mkdir()
    places = {"ROOT": tmp_path, "VENV": venv, "PYTHON": venv / "bin" / "python", "STAMPS": venv / ".stamps"}
    for name, place in places.items():
        monkeypatch.setattr(module, name, place)
    return module


def test_a_step_is_done_until_what_it_was_made_from_changes(setup: ModuleType, tmp_path: Path) -> None:
    """A stamp fits the bytes and names of the files it was made from, and no others."""
    pins = tmp_path / "pins.txt"
    pins.write_text("numpy==1\n")
    setup.stamp("packages", setup.hash_of(pins))
    before = setup.stamped("packages", setup.hash_of(pins))

    pins.write_text("numpy==2\n")

    assert before
    assert not setup.stamped("packages", setup.hash_of(pins))


def test_a_failed_step_leaves_no_stamp(setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where installing fails, the step is not stamped, so that the next run does it again."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "dev.txt").write_text("numpy==1\n")
    calls: list[tuple[str, ...]] = []

    def fail(*arguments: str) -> None:
        calls.append(arguments)
        raise setup.SetupError("no network")

    monkeypatch.setattr(setup, "uv_install", fail)

    for _ in range(2):
        with pytest.raises(setup.SetupError, match="no network"):
            setup.install_packages()

    assert len(calls) == 2


def test_a_broken_environment_is_made_anew(setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `.venv` whose Python does not run is removed and created again; nothing of it is kept."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "uv.txt").write_text("uv==1\n")
    (setup.VENV / "bin").mkdir()
    setup.PYTHON.symlink_to(tmp_path / "gone")
    (setup.VENV / "left-over").touch()
    monkeypatch.setattr(setup, "pip", lambda _: ["true"])

    setup.make_environment()

    assert setup.works(setup.PYTHON)
    assert not (setup.VENV / "left-over").exists()
    assert setup.stamped("uv", setup.hash_of(tmp_path / "requirements" / "uv.txt"))


def test_a_layered_environment_adds_to_the_base(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.venv-clients` finds its own packages first, then those of `.venv` and what .pth files there name."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "clients.txt").write_text("numpy==1\n")
    setup.create_environment(setup.VENV)
    (base,) = setup.VENV.glob("lib/python3.*/site-packages")
    for name in "both", "base":
        (base / f"{name}.py").write_text("place = 'base'\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "borrowed.py").write_text("place = 'borrowed'\n")
    (base / "borrowed.pth").write_text(f"{tmp_path / 'elsewhere'}\n")

    def sync(*arguments: Any) -> None:
        (own,) = (tmp_path / ".venv-clients").glob("lib/python3.*/site-packages")
        (own / "both.py").write_text("place = 'own'\n")

    monkeypatch.setattr(setup, "uv", sync)

    setup.make_layered_environment("clients")

    code = "import both, base, borrowed; print(both.place, base.place, borrowed.place)"
    done = subprocess.run(
        [tmp_path / ".venv-clients" / "bin" / "python", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["own", "base", "borrowed"]
    assert setup.stamped("clients", setup.hash_of(tmp_path / "requirements" / "clients.txt"))


def test_uv_is_told_what_pip_is_told(setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that only pip's configuration names is used by uv too; uv's own variable wins."""
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)

    told = setup.environment()["UV_DEFAULT_INDEX"]
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example/simple")

    assert told == "https://mirror.example/simple"
    assert setup.environment()["UV_DEFAULT_INDEX"] == "https://own.example/simple"


@pytest.mark.parametrize("is_built", [True, False])
def test_the_distribution_of_the_old_name_is_removed(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_built: bool
) -> None:
    """A `penstock` in `.venv` goes before `penstock-data` comes, also where the native core is built already."""
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock" / "_native.abi3.so").touch()
    for name in "Cargo.toml", "Cargo.lock", "pyproject.toml":
        (tmp_path / name).touch()
    site_packages = setup.VENV / "lib" / "python3.11" / "site-packages"
    for name in "penstock-0.1.0.dist-info", "penstock_data-0.1.0.dist-info":
        (site_packages / name).mkdir(parents=True)
    if is_built:
        setup.stamp(
            "native", setup.hash_of(*(tmp_path / name for name in ("Cargo.toml", "Cargo.lock", "pyproject.toml")))
        )
    done: list[str] = []

    def uv(*arguments: Any) -> None:
        done.append(" ".join(map(str, arguments)))
        (site_packages / "penstock-0.1.0.dist-info").rmdir()

    monkeypatch.setattr(setup, "uv", uv)
    monkeypatch.setattr(setup, "run", lambda command, _: done.append(str(command[0])))

    for _ in range(2):
        setup.build_native()

    assert done == [f"pip uninstall --python {setup.PYTHON} penstock", str(setup.VENV / "bin" / "maturin")]


@pytest.mark.parametrize(
    ("tools", "sentence"), [(["cc"], "Rust"), (["cargo", "rustc"], "a C compiler is needed")], ids=["rust", "cc"]
)
def test_what_is_missing_is_said_in_one_sentence(tmp_path: Path, tools: list[str], sentence: str) -> None:
    """Without a compiler or Rust, set-up stops with one line that says what to install, and changes nothing."""
    for tool in tools:
        (tmp_path / tool).symlink_to(shutil.which("true") or "/bin/true")
    environment = {"PATH": str(tmp_path), "HOME": os.environ.get("HOME", "/")}

    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "setup.py"], capture_output=True, text=True, check=False, env=environment
    )

    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert sentence in done.stderr
