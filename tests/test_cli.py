"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from PIL import Image

import penstock as ps
from tests.pack.images import make_photos

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures in two classes."""
    return make_photos(tmp_path / "photos")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``python -m penstock`` as a user would."""
    command = [sys.executable, "-m", "penstock", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def test_pack_says_what_it_did(photos: Path, tmp_path: Path) -> None:
    """A pack is one line on standard output, and nothing else where there is no terminal."""
    done = run("pack", photos, tmp_path / "p.lmdb")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"lmdb://{tmp_path / 'p.lmdb'}: 12 records, ")
    assert len(done.stdout.splitlines()) == 1


def test_pack_lists_what_it_refuses(photos: Path, tmp_path: Path) -> None:
    """Files that cannot be packed are named on standard error, with exit code 1 and no traceback."""
    (photos / "cats" / "empty.jpg").write_bytes(b"")

    done = run("pack", photos, tmp_path / "p.lmdb")

    assert (done.returncode, done.stdout) == (1, "")
    assert "cats/empty.jpg: the file is empty" in done.stderr
    assert "--on-error skip" in done.stderr
    assert "Traceback" not in done.stderr


def test_pack_lists_what_it_skips(photos: Path, tmp_path: Path) -> None:
    """Skipped files are named on standard output."""
    (photos / "cats" / "empty.jpg").write_bytes(b"")

    done = run("pack", photos, tmp_path / "p.lmdb", "--on-error", "skip", "--check", "decode", "--workers", 2)

    assert done.returncode == 0
    assert "1 left out:\n  cats/empty.jpg: the file is empty" in done.stdout


def test_pack_uses_a_finished_pack(photos: Path, tmp_path: Path) -> None:
    """The same command a second time is one line, exit code 0; another option is wrong usage, and is named."""
    run("pack", photos, tmp_path / "p.lmdb")

    again = run("pack", photos, tmp_path / "p.lmdb")
    refused = run("pack", photos, tmp_path / "p.lmdb", "--check", "decode")
    replaced = run("pack", photos, tmp_path / "p.lmdb", "--check", "decode", "--overwrite")

    assert (again.returncode, refused.returncode, replaced.returncode) == (0, 2, 0)
    assert again.stdout.startswith(f"lmdb://{tmp_path / 'p.lmdb'} is already packed, nothing to do: 12 records, ")
    assert len(again.stdout.splitlines()) == 1
    assert "finished pack of 12 records" in refused.stderr
    assert "--check header" in refused.stderr


@pytest.mark.parametrize("given", ["dogs,ants,cats", "file"])
def test_classes_are_named_in_a_list_or_a_file(photos: Path, tmp_path: Path, given: str) -> None:
    """--classes takes names with commas, or a text file with a name a line."""
    if given == "file":
        given = str(tmp_path / "classes.txt")
        Path(given).write_text("dogs\nants\n\ncats\n")

    packed = run("pack", photos, tmp_path / "p.lmdb", "--classes", given)
    indexed = run("index", photos, "--classes", given)
    shown = run("info", photos, "--classes", given, "--json")

    assert (packed.returncode, indexed.returncode) == (0, 0)
    with ps.open(tmp_path / "p.lmdb") as store:
        assert store.schema["label"].classes == ("dogs", "ants", "cats")
    assert json.loads(shown.stdout)["classes"] == {"dogs": 6, "ants": 0, "cats": 6}


def test_classes_that_do_not_fit_are_wrong_usage(photos: Path, tmp_path: Path) -> None:
    """A folder that --classes does not name is one line that names it, exit code 2, and nothing is written."""
    done = run("pack", photos, tmp_path / "p.lmdb", "--classes", "cats,lions")

    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "'dogs'" in done.stderr
    assert not (tmp_path / "p.lmdb").exists()


def test_verify_of_a_whole_pack(photos: Path, tmp_path: Path) -> None:
    """Nothing wrong: one line, exit code 0."""
    ps.pack(photos, tmp_path / "p.lmdb")

    done = run("verify", tmp_path / "p.lmdb", "--source", photos)

    assert (done.returncode, done.stderr) == (0, "")
    assert "12 records, nothing wrong, 12 compared" in done.stdout


def test_verify_of_a_damaged_pack(photos: Path, tmp_path: Path) -> None:
    """A flipped bit: the key on standard output, exit code 1."""
    ps.pack(photos, tmp_path / "p.lmdb")
    data = tmp_path / "p.lmdb" / "data.mdb"
    content = bytearray(data.read_bytes())
    content[content.index((photos / "cats" / "4.jpg").read_bytes()) + 99] ^= 2
    data.write_bytes(content)

    done = run("verify", tmp_path / "p.lmdb")

    assert done.returncode == 1
    assert "'cats/4.jpg'" in done.stdout


def test_info_for_people(photos: Path) -> None:
    """Records, fields, sizes, formats and classes, in plain lines."""
    done = run("info", photos)

    assert done.returncode == 0
    for part in ("records  12", "image: image", "JPEG 12", "2 classes of 6 records each", "cats", "dogs"):
        assert part in done.stdout, part


@pytest.mark.parametrize(
    ("counts", "said"),
    [({"cats": 1}, "1 class of 1 record"), ({"cats": 2, "dogs": 1}, "2 classes of 1 to 2 records")],
)
def test_counts_have_their_plurals(tmp_path: Path, counts: dict[str, int], said: str) -> None:
    """One image is "1 image", and a range of one value is that value, in every command."""
    photos = tmp_path / "photos"
    for name, count in counts.items():
        make_photos(photos, count, (name,))
    total = sum(counts.values())
    records = "1 record" if total == 1 else f"{total} records"

    packed = run("pack", photos, tmp_path / "p.lmdb", "--index", "rows", "--transcode", "baseline")
    shown = run("info", tmp_path / "p.lmdb", "--sheet", tmp_path / "sheet.png")
    verified = run("verify", tmp_path / "p.lmdb")

    assert f"p.lmdb: {records}, " in packed.stdout
    assert f"{'1 image' if total == 1 else f'{total} images'} indexed by rows" in packed.stdout
    assert f"0 images transcoded to baseline, {total} unchanged" in packed.stdout
    assert f"  {said}\n" in shown.stdout
    assert f"{'1 sample' if total == 1 else f'{total} samples'}\n" in shown.stdout
    assert ("median" in shown.stdout) == (total > 1)
    assert f"p.lmdb: {records}, nothing wrong\n" in verified.stdout


def test_refused_files_stand_on_lines_of_their_own(photos: Path, tmp_path: Path) -> None:
    """The first line of an error says how many and of which source, the others one file each."""
    (photos / "cats" / "empty.jpg").write_bytes(b"")

    done = run("pack", photos, tmp_path / "p.lmdb")

    first, *others = done.stderr.splitlines()
    assert first.startswith("penstock: 1 of the source's files cannot be packed")
    assert first.endswith(f"[store='files://{photos}']:")
    assert others == ["  cats/empty.jpg: the file is empty"]


def test_what_is_left_out_is_told_by_reason(photos: Path, tmp_path: Path) -> None:
    """Bystanders are one line, an image that is left out is named with its own reason."""
    (photos / "cats" / "empty.jpg").write_bytes(b"")
    for name in ("README.md", "labels.csv"):
        (photos / name).write_bytes(b"")

    done = run("pack", photos, tmp_path / "p.lmdb", "--on-error", "skip")

    assert done.stdout.splitlines()[1:] == [
        "3 left out:",
        "  cats/empty.jpg: the file is empty",
        "  not an image by its name (2 entries: 'README.md', 'labels.csv')",
    ]


HOSTILE = "\x1b[31m\x9b2J\r\nforged: 0\u202e\x7f"


def test_names_from_a_store_reach_no_terminal_raw(tmp_path: Path) -> None:
    """Escape sequences, newlines and what is no UTF-8 are written as in a Python string, by every command."""
    photos = make_photos(tmp_path / "photos", 2, (f"cats{HOSTILE}", "dogs"))
    for name in "empty", f"empty{HOSTILE}":
        (photos / "dogs" / f"{name}.jpg").touch()
    make_photos(tmp_path / "more" / f"pack{HOSTILE}\udcff", 1, ("cats",))
    pack = tmp_path / "p.lmdb"

    refused = run("pack", photos, pack)
    packed = run("pack", photos, pack, "--on-error", "skip", "--index", "rows")
    shown = run("info", pack, "--sheet", tmp_path / "sheet.png")
    as_json = run("info", pack, "--json")
    (photos / f"cats{HOSTILE}" / "0.jpg").write_bytes(b"changed")
    compared = run("verify", pack, "--source", photos)
    named = run("info", tmp_path / "more" / f"pack{HOSTILE}\udcff")

    outputs = [
        text for done in (refused, packed, shown, as_json, compared, named) for text in (done.stdout, done.stderr)
    ]
    assert [done.returncode for done in (refused, packed, shown, as_json, compared, named)] == [1, 0, 0, 0, 1, 0]
    for text in outputs:
        assert text.replace("\n", "").isprintable()
        assert not any(line.startswith("forged") for line in text.splitlines())
    escaped = r"\x1b[31m\x9b2J\r\nforged: 0\u202e\x7f"
    assert rf"dogs/empty{escaped}.jpg" in refused.stderr
    assert rf"dogs/empty{escaped}.jpg" in packed.stdout
    assert rf"cats{escaped}" in shown.stdout
    assert f"cats{HOSTILE}" in json.loads(as_json.stdout)["classes"]
    assert rf"cats{escaped}" in compared.stdout
    assert rf"pack{escaped}\udcff" in named.stdout


def test_info_for_programs(photos: Path, tmp_path: Path) -> None:
    """--json prints JSON alone, also with a sheet."""
    done = run("info", photos, "--json", "--sheet", tmp_path / "sheet.png")

    said = json.loads(done.stdout)

    assert (said["records"], said["classes"]) == (12, {"cats": 6, "dogs": 6})
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"


@pytest.mark.parametrize(("name", "words"), [("nodir/x.png", "does not exist"), ("x.txt", ".png")])
def test_a_sheet_that_cannot_be_is_one_line(photos: Path, tmp_path: Path, name: str, words: str) -> None:
    """A usage error without a traceback."""
    done = run("info", photos, "--sheet", tmp_path / name)

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr


@pytest.mark.parametrize("command", ["info", "verify"])
def test_missing_store_is_one_line(command: str, tmp_path: Path) -> None:
    """A store that is not there is one line on standard error, exit code 1."""
    done = run(command, tmp_path / "nothing")

    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert str(tmp_path / "nothing") in done.stderr


@pytest.mark.parametrize("arguments", [["pack"], ["pack", "a", "b", "--on-error", "ignore"], ["unknown"], ["info"]])
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    """Missing arguments, unknown commands and unknown values are usage errors."""
    assert run(*arguments).returncode == 2


def test_the_version_is_one_line() -> None:
    """`penstock --version` prints the name and the version, and loads nothing else."""
    done = run("--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"penstock {ps.__version__}\n"


@pytest.mark.parametrize("command", ["pack", "verify", "info"])
def test_help_of_every_command(command: str) -> None:
    """Each command explains itself."""
    done = run(command, "--help")

    assert done.returncode == 0
    assert "Usage: penstock" in done.stdout


def test_import_of_the_package_stays_light() -> None:
    """Asking for help loads neither LMDB, Pillow nor torch."""
    program = (
        "import sys; sys.argv = ['penstock', '--help']\n"
        "from penstock.cli import main\n"
        "try: main()\n"
        "except SystemExit: print([name for name in ('lmdb', 'PIL', 'torch', 'msgpack') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_interrupt_keeps_what_is_committed(tmp_path: Path) -> None:
    """Ctrl-C while packing: exit code 130, one line that says how to go on, and going on works."""
    photos = make_photos(tmp_path / "photos", 600)
    command = [sys.executable, "-m", "penstock", "pack", str(photos), str(tmp_path / "p.lmdb"), "--check", "decode"]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while child.poll() is None and not (tmp_path / "p.lmdb" / "pack.lock").exists():
        time.sleep(0.001)

    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    again = run("pack", photos, tmp_path / "p.lmdb")

    assert child.returncode == 130
    assert said.splitlines()[-1].endswith("the same command resumes it")
    assert "Traceback" not in said
    assert again.returncode == 0
    assert ps.verify(tmp_path / "p.lmdb", photos).ok


def test_bar_on_a_terminal(photos: Path, tmp_path: Path) -> None:
    """On a terminal a bar shows records and rates, and is gone at the end."""
    ours, theirs = pty.openpty()
    seen = bytearray()

    def listen() -> None:
        try:
            while part := os.read(ours, 1 << 16):
                seen.extend(part)
        except OSError:
            return  # the terminal's other end is closed

    thread = threading.Thread(target=listen)
    thread.start()
    command = [sys.executable, "-m", "penstock", "pack", str(photos), str(tmp_path / "p.lmdb")]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, text=True, check=False)
    os.close(theirs)
    thread.join()
    os.close(ours)

    assert done.returncode == 0
    assert b"packing" in seen
    assert b"records/s" in seen
