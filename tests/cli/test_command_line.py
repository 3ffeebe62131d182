"""What every command has in common: documentation, JSON, exit codes, streams that are closed, completion."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.cli.app import ABOUT
from penstock.cli.app import COMMANDS as TABLE
from tests.pack.images import make_photos
from tests.test_cli import run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text()
TO_A_FILE = {"penstock doctor", "penstock tune"}
WITHOUT_A_RESULT = {"penstock demo", "penstock view"}


def app_with_all_commands() -> Any:
    """The command ``penstock``, as it is when every command was imported."""
    for name in TABLE:
        TABLE.get(name)
    return get_command(app)


def list_commands(command: Any, name: str = "penstock") -> Iterator[tuple[str, Any]]:
    """All commands, those of groups too."""
    if isinstance(command, click.Group) or hasattr(command, "commands"):
        for each, below in command.commands.items():
            yield from list_commands(below, f"{name} {each}")
    else:
        yield name, command


COMMANDS = dict(list_commands(app_with_all_commands()))


def list_options(name: str) -> set[str]:
    """The options that the help of a command has."""
    shown = [each for each in COMMANDS[name].params if each.param_type_name == "option" and not each.hidden]
    return {option for each in shown for option in (*each.opts, *each.secondary_opts)} - {"--help", "-o"}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures in two classes."""
    return make_photos(tmp_path / "photos")


def test_the_page_has_every_command_and_option() -> None:
    """docs/command-line.md has a section for each command, with its options and no others."""
    sections = dict(re.findall(r"^### (penstock [^\n]*)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))

    assert sorted(sections) == sorted(COMMANDS)
    for name, text in sections.items():
        rows = [row for row in text.splitlines() if row.startswith(("| `-", "Also ", "Options: "))]
        named = {option for row in rows for option in re.findall(r"`(--?[a-z-]+)`", row.split(" | ")[0])}
        assert named - {"-o"} == list_options(name), name


def test_the_table_says_of_each_command_what_its_help_says() -> None:
    """It has the first paragraph of each help, so that ``penstock --help`` imports no command."""
    program = (
        "import sys; sys.argv = ['penstock', '--help']\n"
        "from penstock.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(*(name for name in sys.modules if name.startswith('penstock.')))"
    )
    helps = {name: command.help.partition("\n\n")[0] for name, command in app_with_all_commands().commands.items()}

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert {name: " ".join(text.split()) for name, text in helps.items()} == {name: ABOUT[name][1] for name in TABLE}
    assert not {name for name in done.stdout.splitlines()[-1].split() if "command" in name}


def test_the_help_shows_optional_arguments_in_one_pair_of_brackets() -> None:
    """Typer adds them."""
    for name, command in COMMANDS.items():
        usage = command.get_usage(click.Context(command, info_name=name))
        assert "[[" not in usage


def test_every_command_with_a_result_has_json() -> None:
    """``--json`` prints it; the commands that run a script write it to a file."""
    for name, command in COMMANDS.items():
        option = next((each for each in command.params if "--json" in each.opts), None)
        assert (option is None) == (name in WITHOUT_A_RESULT), name
        assert option is None or option.is_flag == (name not in TO_A_FILE), name


def test_json_is_all_that_is_printed(photos: Path, tmp_path: Path) -> None:
    """One object on standard output, of the result of each command."""
    pack, other = tmp_path / "p.lmdb", tmp_path / "q.lmdb"
    (photos / "cats" / "empty.jpg").touch()
    expected: dict[tuple[object, ...], dict[str, object]] = {
        ("pack", photos, pack, "--on-error", "skip", "--resize", 16): {"records": 12, "reused": False},
        ("index", photos): {"indexed": 12, "kind": "tiles"},
        ("merge", pack, other): {"records": 12},
        ("copy", pack, tmp_path / "copy.lmdb"): {"records": 12},
        ("convert", pack, tmp_path / "c.tar"): {"ok": True, "records": 12},
        ("verify", pack): {"ok": True, "problems": []},
        ("check", "--pixels", pack, "--limit", 3): {"ok": True, "pictures": 3},
        ("info", pack): {"records": 12, "classes": {"cats": 6, "dogs": 6}},
        ("split", pack, 0.5, 0.5, "--by", "label"): {"counts": {"train": 6, "val": 6}, "by": ["label"]},
        ("show", pack, "--n", 2, "--output", tmp_path / "s.png"): {"file": str(tmp_path / "s.png")},
        ("plan", "--samples", 100, "--ranks", 2, "--batch-size", 5): {"batch_size": 5},
        ("cache", "info", tmp_path / "cache"): {"nbytes": 0, "stores": []},
        ("cache", "clear", "--all", "--cache", tmp_path / "cache"): {"nbytes": 0, "stores": []},
        ("explain", "worker"): {"name": "worker"},
        ("explain",): {},
        ("env",): {},
        ("init", photos, "--output", tmp_path / "train.py"): {"task": "classification"},
    }
    for command, words in expected.items():
        done = run(*command, "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert {name: result[name] for name in words} == words, command
    packed = json.loads(run("pack", photos, pack, "--on-error", "skip", "--resize", 16, "--json").stdout)
    assert (packed["reused"], packed["schema"]["label"]["classes"]) == (True, ["cats", "dogs"])
    assert run("pack", photos, other, "--overwrite", "--json").stdout == ""


def test_env_has_what_a_report_needs_and_nothing_private(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions, processor, cores, memory; no path, no name, no value of a variable, and torch is not imported."""
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", "a-secret-value")

    done = run("env")

    assert done.returncode == 0
    rows = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"penstock", "Python", "system", "processor", "native", "cores", "memory", "shm", "numpy"} <= rows
    assert f"penstock {ps.__version__}" in " ".join(done.stdout.split())
    private = {
        str(Path.home()),
        str(ROOT),
        os.uname().nodename,
        "a-secret-value",
        *filter(None, [os.environ.get("USER")]),
    }
    words = set(re.split(r"[\s,]+", done.stdout))
    assert private & words == set()
    assert "/" not in done.stdout.replace("GNU/Linux", "")


def test_one_class_and_what_was_left_out_are_said(tmp_path: Path) -> None:
    """Images beside each other become one class: pack and info say so; info names entries that were left out."""
    flat, pack = tmp_path / "flat", tmp_path / "flat.lmdb"
    flat.mkdir()
    for photo in sorted(make_photos(tmp_path / "photos").rglob("*.*"))[:3]:
        (flat / photo.name).write_bytes(photo.read_bytes())
    for number in range(7):
        (flat / f"broken{number}.jpg").write_bytes(b"no image")

    packed, told, folder = run("pack", flat, pack, "--on-error", "skip"), run("info", pack), run("info", flat)

    for done in (packed, told, folder):
        assert "all records have the class 'flat': images that are in no sub-folder" in done.stdout, done.stderr
    assert "  left out 7 entries of the source\n    broken0.jpg: not an image" in told.stdout
    assert "    broken4.jpg: not an image" in told.stdout
    assert "    ... and 2 more\n" in told.stdout
    assert len(json.loads(run("info", pack, "--json").stdout)["first_skipped"]) == 5


def test_init_says_what_it_recognised(photos: Path, tmp_path: Path) -> None:
    """The folder, what it is, the script; a script that exists is not replaced."""
    script = tmp_path / "train.py"

    done, again = run("init", photos, "--output", script), run("init", photos, "--output", script)
    nowhere = run("init", photos, "--output", tmp_path / "no" / "train.py")

    assert done.returncode == 0
    first, few, last = done.stdout.splitlines()
    assert "12 records: the script's network begins with random weights" in few
    assert first.startswith(f"{photos}: a folder of images with a sub-folder for each of 2 classes (cats, dogs)")
    assert last.startswith(f"{script}: written, for classification.")
    assert f"penstock doctor {script.name}" in script.read_text()
    assert (again.returncode, nowhere.returncode) == (2, 2)
    assert "--overwrite" in again.stderr


def test_explain_prints_a_page_and_the_list() -> None:
    """Plain text where there is no terminal."""
    page, pages, unknown = run("explain", "StallError"), run("explain"), run("explain", "stal")

    assert page.stdout.startswith("# stall\n")
    assert "  limit-decode" in pages.stdout
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "did you mean stall" in unknown.stderr


def start(command: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell, in which ``penstock`` is this one."""
    line = f'penstock() {{ {sys.executable} -m penstock "$@"; }}; {command}'
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as users have it
    return subprocess.run(
        ["bash", "-c", line], env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def test_streams_that_are_closed_or_full_need_no_traceback(photos: Path, tmp_path: Path) -> None:
    """A reader that has seen enough, a full disk, and streams that were closed before the start."""
    pack = tmp_path / "p.lmdb"

    head = start("set -o pipefail; penstock explain | head -1; penstock info nothing 2>&1 | head -1")
    full = start("penstock explain > /dev/full")
    closed = start(f"penstock pack {photos} {pack} <&- >&- 2>&-")

    assert (head.stderr, full.returncode, closed.returncode) == ("", 1, 0)
    assert full.stderr.splitlines() == ["penstock: [Errno 28] No space left on device", "More: penstock explain store"]
    assert ps.verify(pack, photos).ok


@pytest.mark.skipif(os.geteuid() != 0 and not Path("/proc").is_dir(), reason="needs a folder that cannot be written")
@pytest.mark.parametrize(
    "command",
    [
        ("pack", "PHOTOS", "/proc/p.lmdb"),
        ("convert", "PHOTOS", "/proc/p.tar"),
        ("split", "PHOTOS", 0.5, 0.5, "--output", "/proc/s.csv"),
        ("show", "PHOTOS", "--output", "/proc/s.png"),
        ("init", "PHOTOS", "--output", "/proc/train.py"),
    ],
)
def test_a_destination_that_cannot_be_written_is_a_sentence(photos: Path, command: tuple[object, ...]) -> None:
    """It names the place, and the page of the error follows."""
    done = run(*(photos if each == "PHOTOS" else each for each in command))

    assert done.returncode in {1, 2}
    sentence, page = done.stderr.splitlines()
    assert "/proc/" in sentence
    assert page.startswith("More: penstock explain ")


def test_an_interrupted_command_exits_with_130(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it does at that moment."""

    def interrupt(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("penstock.stores.open", interrupt)

    for command in ("info", "index", "show"):
        done = run(command, photos)
        assert (done.returncode, done.stdout) == (130, ""), command
        assert "Traceback" not in done.stderr


def test_narrow_terminals_and_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Help is as wide as the terminal, and has no escape sequences where NO_COLOR is set."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "pack", "--help"], cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "COLUMNS": "40", "NO_COLOR": "1", "TERM": "dumb"},
    )  # fmt: skip

    assert max(map(len, done.stdout.splitlines())) <= 40
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock ver", "COMP_CWORD": "1"}, "verify"),
        ({"_PENSTOCK_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "penstock pack --on-er"}, "--on-error"),
        ({"_PENSTOCK_COMPLETE": "source_bash"}, "complete -o default -F _penstock_completion penstock"),
        ({"_PENSTOCK_COMPLETE": "source_zsh"}, "compdef _penstock_completion penstock"),
    ],
)
def test_shells_complete_commands_and_options(variables: dict[str, str], words: str) -> None:
    """As bash and zsh ask."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip

    assert words in done.stdout


@pytest.mark.parametrize("command", ["doctor", "tune"])
def test_the_doctor_says_that_it_needs_torch(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch is not installed, the script is not begun, and the error says what to install."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    result = CliRunner().invoke(app, [command, "train.py"])

    assert isinstance(result.exception, ps.OptionalPackageError)
    assert "pip install 'penstock-data[torch]'" in str(result.exception)


def test_init_names_a_missing_folder_before_an_existing_script(tmp_path: Path) -> None:
    """What was mistyped is said, not that a script of before is there."""
    (tmp_path / "train.py").touch()

    result = CliRunner().invoke(app, ["init", str(tmp_path / "nowhere"), "--output", str(tmp_path / "train.py")])

    assert isinstance(result.exception, ps.PenstockError)
    assert "nowhere" in str(result.exception)
    assert "train.py" not in str(result.exception)


OWN_STORE = '''
from penstock import Field, Record, Schema
from penstock.stores import STORES
from penstock.stores.container import ContainerStore


class LinesStore(ContainerStore):
    """A number in each line."""

    kind = "lines"
    _schema = Schema({"number": Field("int")})

    @classmethod
    def recognises(cls, path):
        return path.endswith(".lines")

    def open_files(self):
        return self.location.paths[0].read_text().split()

    def __len__(self):
        return len(self.location.paths[0].read_text().split())

    def read_record(self, opened, index):
        return Record(index, str(index), {"number": int(opened[index])})


for _ in range(2):  # to register it again is no error
    STORES.register("lines", "own_lines:LinesStore")
'''


def test_a_module_of_ones_own_is_imported_first(tmp_path: Path) -> None:
    """It registers a kind of store, which the command then reads."""
    (tmp_path / "own_lines.py").write_text(OWN_STORE)
    (tmp_path / "a.lines").write_text("3 4 5")
    command = [sys.executable, "-P", "-m", "penstock", "--import", "own_lines", "info", "a.lines"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "records  3" in done.stdout
    assert "number: int" in done.stdout


def test_a_module_that_cannot_be_imported_is_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sentence, without a traceback of the module."""
    (tmp_path / "wrong_module.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    for name, reason in (("wrong_module", "ZeroDivisionError: division by zero"), ("no_module", "No module named")):
        done = run("--import", name, "explain", "worker")

        assert done.returncode == 2
        assert done.stderr.startswith(f"penstock: --import: the module {name!r} cannot be imported: ")
        assert reason in done.stderr
