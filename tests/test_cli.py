"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.cells import cell_len

import penstock as ps
from penstock.cli import main
from tests.pack.images import make_photos
from tests.pack.voc import write_voc
from tests.sheets.annotated_packs import gray, write_pack

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures in two classes."""
    return make_photos(tmp_path / "photos")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which is a tenth of the work of a new one."""
    command, output, errors, code = ["penstock", *map(str, arguments)], io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        patch.setattr(sys, "argv", command)
        patch.setenv("COLUMNS", "100")
        patch.setenv("NO_COLOR", "1")
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return subprocess.CompletedProcess(command, code, output.getvalue(), errors.getvalue())


def run_program(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``python -m penstock`` as a user would."""
    command = [sys.executable, "-m", "penstock", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def assert_is_one_sentence(errors: str, page: str) -> None:
    """One line that begins with the program's name, and the line that names the page."""
    sentence, more = errors.splitlines()
    assert sentence.startswith("penstock: ")
    assert more == f"More: penstock explain {page}"


def test_a_warning_is_one_line(tmp_path: Path) -> None:
    """Without a file and a line of the package; a warning in a file of the user's keeps both."""
    photos = make_photos(tmp_path / "photos", 2, ("train", "valid"))
    (tmp_path / "ops.py").write_text(f"import warnings\nwarnings.warn('mine')\n{PIPELINE}")
    sheet = tmp_path / "sheet.png"

    done = run_program("show", photos, "--augment", tmp_path / "ops.py:augment", "--output", sheet)

    user, source, package = done.stderr.splitlines()
    assert done.returncode == 0
    assert package.startswith("warning: the classes are called as splits are")
    assert (user, source) == (f"{tmp_path / 'ops.py'}:2: UserWarning: mine", "  warnings.warn('mine')")


def test_pack_says_what_it_did(photos: Path, tmp_path: Path) -> None:
    """A pack is three lines on standard output, and nothing else where there is no terminal."""
    done = run_program("pack", photos, tmp_path / "p.lmdb")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"lmdb://{tmp_path / 'p.lmdb'}: 12 records, ")
    fields, indexed = done.stdout.splitlines()[1:]
    assert fields == "fields: image (image), label (label, 2 classes), width (int), height (int)"
    assert "12 images indexed by tiles" in indexed


def test_pack_lists_what_it_refuses(photos: Path, tmp_path: Path) -> None:
    """Files that cannot be packed are named on standard error, with exit code 1 and no traceback."""
    (photos / "cats" / "empty.jpg").write_bytes(b"")

    done = run_program("pack", photos, tmp_path / "p.lmdb")

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
    """--classes takes names with commas, or a text file with a name a line, also one of Windows."""
    if given == "file":
        given = str(tmp_path / "classes.txt")
        Path(given).write_text("dogs\r\nants\r\n\r\ncats\r\n", encoding="utf-8-sig", newline="")

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
    assert_is_one_sentence(done.stderr, "argument")
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

    first, *others, page = done.stderr.splitlines()
    assert first.startswith("penstock: 1 of the source's files cannot be packed")
    assert first.endswith(f"[store='files://{photos}']:")
    assert others == ["  cats/empty.jpg: the file is empty"]
    assert page == "More: penstock explain pack"


def test_what_is_left_out_is_told_by_reason(photos: Path, tmp_path: Path) -> None:
    """Bystanders are one line, an image that is left out is named with its own reason."""
    (photos / "cats" / "empty.jpg").write_bytes(b"")
    for name in ("README.md", "labels.csv"):
        (photos / name).write_bytes(b"")

    done = run("pack", photos, tmp_path / "p.lmdb", "--on-error", "skip")

    assert done.stdout.splitlines()[3:] == [
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
    assert_is_one_sentence(done.stderr, "argument")
    assert words in done.stderr


PIPELINE = """
from penstock import transforms as T

augment = [T.Decode(), T.Resize((32, 32))]


def fail(sample):
    raise KeyError("depth")
"""


def test_show_draws_samples_before_and_after(photos: Path, tmp_path: Path) -> None:
    """One line says what was written; a second time, the file is kept unless --overwrite is given."""
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    command = ("show", photos, "--n", 3, "--augment", tmp_path / "pipeline.py:augment", "--tile", 100)

    done = run(*command, "--output", tmp_path / "sheet.png")
    again = run(*command, "--output", tmp_path / "sheet.png")
    replaced = run(*command, "--output", tmp_path / "sheet.png", "--overwrite")

    with Image.open(tmp_path / "sheet.png") as sheet:
        assert done.stdout == replaced.stdout == f"{tmp_path / 'sheet.png'}: {sheet.width} x {sheet.height} pixels\n"
        assert sheet.width > 3 * 2 * 100
    assert (done.returncode, again.returncode, replaced.returncode) == (0, 2, 0)
    assert "--overwrite" in again.stderr


@pytest.mark.parametrize(
    ("value", "status", "words"),
    [
        ("pipeline.py", 2, "FILE.py:NAME"),
        ("nothing.py:augment", 2, "there is no file"),
        ("pipeline.py:nothing", 2, "has only: T, augment, fail"),
        ("wrong.py:augment", 2, "SyntaxError"),
        ("stopped.py:augment", 2, "ValueError: no data, at"),
        ("pipeline.py:fail", 1, "KeyError: 'depth', at"),
    ],
)
def test_show_names_errors_of_the_file(photos: Path, tmp_path: Path, value: str, status: int, words: str) -> None:
    """Of the file or of the code in it: one line without a traceback, and nothing is written."""
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "wrong.py").write_text("def:")
    (tmp_path / "stopped.py").write_text('raise ValueError("no data")')

    done = run("show", photos, "--augment", tmp_path / value, "--output", tmp_path / "sheet.png")

    assert (done.returncode, done.stdout) == (status, "")
    assert_is_one_sentence(done.stderr, "argument" if status == 2 else "sample")
    assert words in done.stderr
    assert not (tmp_path / "sheet.png").exists()


def test_show_says_how_kinds_are_given(tmp_path: Path) -> None:
    """An array that looks like boxes is refused beside ops that move the image; the error names the option."""
    (tmp_path / "flip.py").write_text(
        "from penstock import transforms as T\naugment = T.Pipeline([T.Decode(), T.HorizontalFlip()])\n"
    )
    fields = {"image": ps.Field("image"), "bbox": ps.Field("float32[*,4]")}
    record = {"image": gray(), "bbox": np.zeros((1, 4), np.float32)}
    path = write_pack(tmp_path / "p.lmdb", fields, [record])
    command = ("show", path, "--augment", tmp_path / "flip.py:augment", "--output", tmp_path / "sheet.png")

    refused = run(*command)
    moved, left = (run(*command, "--kind", f"bbox={kind}", "--overwrite") for kind in ("boxes", "none"))

    assert (refused.returncode, moved.returncode, left.returncode) == (2, 0, 0)
    assert "--kind FIELD=KIND" in refused.stderr


@pytest.mark.parametrize("command", ["info", "verify"])
def test_missing_store_is_one_line(command: str, tmp_path: Path) -> None:
    """A store that is not there is one line on standard error, exit code 1."""
    done = run(command, tmp_path / "nothing")

    assert (done.returncode, done.stdout) == (1, "")
    assert_is_one_sentence(done.stderr, "store-not-found")
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


@pytest.mark.parametrize("command", ["pack", "verify", "info", "show", "cache"])
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


INTERRUPTED = """
import os, signal
from penstock.cli import main
from penstock.stores.lmdb_pack.writer import LmdbWriter

append = LmdbWriter.append

def append_or_be_interrupted(self, prepared):
    append(self, prepared)
    if self.records == 100:
        os.kill(os.getpid(), signal.SIGINT)

LmdbWriter.append = append_or_be_interrupted
main()
"""


def test_interrupt_keeps_what_is_committed(tmp_path: Path) -> None:
    """Ctrl-C while packing: exit code 130, one line that says how to go on, and going on works."""
    photos = make_photos(tmp_path / "photos", 300)
    command = [sys.executable, "-c", INTERRUPTED, "pack", str(photos), str(tmp_path / "p.lmdb"), "--check", "decode"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    again = run("pack", photos, tmp_path / "p.lmdb")

    assert done.returncode == 130
    assert done.stderr.splitlines()[-1].endswith("the same command resumes it")
    assert "Traceback" not in done.stderr
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
    variables = {**os.environ, "TERM": "xterm"}  # an editor's terminal has none that can go back in a line
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, text=True, check=False, env=variables
    )
    os.close(theirs)
    thread.join()
    os.close(ours)

    assert done.returncode == 0
    assert b"packing" in seen
    assert b"records/s" in seen


def test_a_table_is_packed_with_its_options(photos: Path, tmp_path: Path) -> None:
    """Kinds, columns, keys, the root and the number of processes are given as options; wrong ones exit with 2."""
    table = tmp_path / "t.csv"
    table.write_text('file,boxes,note\ncats/0.jpg,"[[0, 0, 5, 5]]",x\ndogs/1.jpg,[],y\n')
    options = ("--schema", "boxes=boxes", "--schema", "note=none", "--column", "photo=file", "--key", "index")

    done = run("pack", table, tmp_path / "p.lmdb", "--root", photos, *options, "--jobs", 2, "--index", "none")
    wrong = run("pack", table, tmp_path / "q.lmdb", "--schema", "boxes")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [
        "fields: photo (image), boxes (boxes)",
        "no field is called image: images are in 'photo'",
    ]
    with ps.open(tmp_path / "p.lmdb") as store:
        assert list(store.keys()) == ["0", "1"]
        assert store[0].fields["boxes"].tolist() == [[0, 0, 5, 5]]
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--schema must be NAME=VALUE, got 'boxes'" in wrong.stderr


def test_packs_are_merged_and_split(photos: Path, tmp_path: Path) -> None:
    """`merge` says what it wrote; `split` prints histograms of all parts, and writes a file."""
    for name in ("a", "b"):
        run("pack", photos, tmp_path / f"{name}.lmdb")

    equal = run("merge", tmp_path / "a.lmdb", tmp_path / "b.lmdb", tmp_path / "c.lmdb")
    merged = run("merge", tmp_path / "a.lmdb", tmp_path / "b.lmdb", tmp_path / "c.lmdb", "--prefix")
    split = run(
        "split", tmp_path / "c.lmdb", 0.75, 0.25, "--by", "label", "--names", "fit,test", "--output", tmp_path / "s.csv"
    )

    assert equal.returncode == 1
    assert "--prefix" in equal.stderr
    assert merged.returncode == 0
    assert f"lmdb://{tmp_path / 'c.lmdb'}: 24 records" in merged.stdout
    assert "24 images indexed by tiles (24 of them earlier)" in merged.stdout
    assert split.returncode == 0
    assert split.stdout.splitlines()[0] == "24 records: fit 18 (75.0 %), test 6 (25.0 %), by label, seed 0"
    assert split.stdout.splitlines()[3].split()[:5] == ["cats", "12", "9", "75.0", "%"]
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 25
    named = run("split", tmp_path / "c.lmdb", "train", "val")
    assert (named.returncode, "got 'train'; --names gives their names" in named.stderr) == (2, True)


def test_long_names_of_classes_are_cut(tmp_path: Path) -> None:
    """The counts stay on the line of a terminal."""
    for name in ("a", "b" * 200):
        make_photos(tmp_path / "photos" / name, 2)

    shown = run("info", tmp_path / "photos").stdout

    assert max(map(len, shown.splitlines()[-2:])) < 110


def test_pack_with_annotations(tmp_path: Path) -> None:
    """``--annotations`` adds boxes and classes; ``--format`` alone says that the source has both."""
    folder = write_voc(tmp_path / "voc", [[("cat", 0, 0, 5, 5)], [("dog", 1, 1, 7, 7)]])

    done = run("pack", folder / "JPEGImages", tmp_path / "p.lmdb", "--annotations", folder, "--format", "voc")
    again = run("pack", folder, tmp_path / "q.lmdb", "--format", "voc", "--split", "train")

    assert (done.returncode, done.stderr) == (0, "")
    assert "labels (int64[*], 2 classes)" in done.stdout
    assert (again.returncode, again.stderr) == (0, "")
    assert (tmp_path / "p.lmdb/data.mdb").read_bytes() == (tmp_path / "q.lmdb/data.mdb").read_bytes()
    assert "2 classes" in run("info", tmp_path / "p.lmdb").stdout


def test_verify_of_annotations(tmp_path: Path) -> None:
    """A table, as text or JSON; the exit code is 1 if there are problems."""
    folder = write_voc(tmp_path / "voc", [[("cat", 0, 0, 5, 5)], [("dog", 1, 1, 7, 7)]])
    whole = run("verify", "--annotations", folder, "--format", "voc")
    (folder / "JPEGImages" / "1.jpg").unlink()

    broken = run("verify", "--annotations", folder, "--format", "voc")
    as_json = run("verify", "--annotations", folder, "--format", "voc", "--report", "json")

    assert (whole.returncode, whole.stderr) == (0, "")
    assert "nothing wrong" in whole.stdout
    assert (broken.returncode, broken.stderr) == (1, "")
    assert "Annotations/1.xml: there is no image '1.jpg' (image left out)" in broken.stdout
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["files"] == {"Annotations/1.xml": 1}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("x.lmdb", "--format", "voc"),
        ("--annotations", "x", "--source", "y"),
        ("--annotations", "x", "--layout", "z"),
    ],
)
def test_verify_refuses_options_that_do_not_belong_together(arguments: tuple[str, ...]) -> None:
    """The exit code is that of wrong usage."""
    done = run("verify", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert "--annotations" in done.stderr


def test_classes_with_wide_letters_are_aligned(tmp_path: Path) -> None:
    """A letter that a terminal shows in two cells counts as two."""
    ps.pack([{"label": 0}, {"label": 1}], tmp_path / "p.lmdb", schema={"label": "label"}, classes=["cat", "犬犬"])

    lines = [line for line in run("info", tmp_path / "p.lmdb").stdout.split("\n") if "▇" in line]

    assert [cell_len(line[: line.index("1")]) for line in lines] == [len("    cat          ")] * 2
