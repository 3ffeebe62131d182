"""The best change of the user's own file, measured by the script itself, becomes a patch of it."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from penstock.doctor.fixes.candidates import (
    FixCandidate,
    LoaderSite,
    _compiles,
    advised_candidates,
    own_candidates,
    parse_change,
)
from penstock.doctor.fixes.edits import Position, PythonSource
from penstock.doctor.fixes.patch import Fix, MeasuredChange, compare_runs, find_fix
from penstock.doctor.judge.diagnosis import ONE_THREAD
from penstock.doctor.judge.text_report import Diagnosis
from penstock.doctor.trials.run_options import RunOptions
from penstock.doctor.trials.script_runs import ScriptChange, ScriptRuns
from tests.doctor.diagnoses import make_diagnosis

ROOT = Path(__file__).resolve().parents[2]
TRAIN = """import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        return np.load("rows.npy")[index]


if __name__ == "__main__":
    loader = DataLoader(Rows(), 8, shuffle=True)  # as in the paper
    for rows in loader:
        pass
"""
LINE = "    loader = DataLoader(Rows(), 8, shuffle=True)  # as in the paper"
CALL: Position = (15, 15, 13, 48)
READER = 10
"""Line of ``__getitem__``."""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in the present folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def site_of(script: Path, *, library: str = "torch", position: Position = CALL) -> LoaderSite:
    """Where the script makes its loader."""
    assert TRAIN.splitlines()[CALL[0] - 1 if CALL[0] else 0] == LINE
    parameters = ("dataset", "batch_size", "shuffle")
    return LoaderSite(library, "DataLoader", parameters, True, str(script), position, (str(script), READER))


def diagnosis_of(*changes: str) -> Diagnosis:
    """A diagnosis with pieces of advice."""
    diagnosis = make_diagnosis()
    advice = dataclasses.replace(diagnosis.advice[0], measured=None)
    diagnosis.advice = [dataclasses.replace(advice, change=change) for change in changes]
    diagnosis.notes = []
    return diagnosis


def speeds(by_text: dict[str, float]) -> Callable[[ScriptChange], tuple[float, str]]:
    """A run that is as fast as the first text in the changed source, or the arguments set from outside, says."""

    def run(change: ScriptChange) -> tuple[float, str]:
        if not (change.sources or change.arguments or change.one_thread):
            return 100.0, ""
        text = "".join(change.sources.values()) + str(change.arguments)
        found = next((speed for part, speed in by_text.items() if part in text), 100.0)
        return (found, "") if found else (0.0, "ValueError: no")

    return run


def test_the_first_advice_and_penstocks_loader_are_tried_and_the_best_is_the_fix(script: Path) -> None:
    """Advice that is no line of code is passed over; its gain is replaced by the script's own."""
    diagnosis = diagnosis_of("pack the dataset", "num_workers=3", "num_workers=1", "num_workers=7")
    run = speeds(
        {
            '"auto"': 150.0,
            "num_workers=3": 180.0,
            "num_workers=1": 90.0,
            "num_workers=7": 0.0,
            "mmap_mode": 0.0,
            "penstock": 110.0,
        }
    )

    fix = find_fix(diagnosis, site_of(script), run, 60.0, lambda _: None)

    assert fix.best is not None
    assert fix.best.candidate.change == "num_workers=3"
    assert [advice.measured and advice.measured.median for advice in diagnosis.advice] == [None, 1.8, 0.9, None]
    assert fix.diff == (
        '--- a/train.py\n+++ b/train.py\n@@ -12,6 +12,6 @@\n \n \n if __name__ == "__main__":\n'
        f"-{LINE}\n+{LINE.replace('True', 'True, num_workers=3')}\n"
        "     for rows in loader:\n         pass\n"
    )  # fmt: skip
    assert "again: +80% (+80% to +80%, 2 runs)" in str(fix)
    assert "numpy.load, of which a part is used: ValueError: no" in str(fix)
    tried = {each.candidate.change.rpartition(" ")[2]: each.ratios for each in fix.tried}
    assert tried == {
        "num_workers=3": [1.8, 1.8],
        "num_workers=1": [0.9],
        "batches": [1.1] * 2,
        'num_workers="auto"': [1.5] * 2,
        "used": [],
    }


def test_candidates_change_the_source_as_they_say(script: Path) -> None:
    """Each is a whole file."""
    edited = [each.edited for each in own_candidates(site_of(script)) if isinstance(each, FixCandidate)]

    own = TRAIN.replace(
        "from torch.utils.data import DataLoader, Dataset",
        "from penstock.torch import DataLoader\nfrom torch.utils.data import Dataset",
    )
    assert edited == [
        own,
        own.replace("shuffle=True", 'shuffle=True, num_workers="auto"'),
        TRAIN.replace('"rows.npy"', '"rows.npy", mmap_mode="r"'),
    ]


KEPT = """import pandas as pd
import json, sqlite3, zipfile
from torch.utils.data import DataLoader

scale = lambda value: value / 255


class Rows:
    def __getitem__(self, index):
        {0}

    @staticmethod
    def describe():
        return "rows"
"""


@pytest.mark.parametrize(
    ("body", "edited", "added"),
    [
        (
            "with zipfile.ZipFile(self.path) as z: return z.read(self.names[index])",
            "with contextlib.nullcontext(kept_zipfile_ZipFile(self.path)) as z: return z.read(self.names[index])",
            (
                "import functools\nimport os\nimport contextlib\n"
                "kept_zipfile_ZipFile = functools.cache(zipfile.ZipFile)\n"
                "os.register_at_fork(after_in_child=kept_zipfile_ZipFile.cache_clear)\n"
            ),
        ),
        (
            "con = sqlite3.connect(PATH); row = con.execute('', (index,)); con.close(); return row",
            "con = kept_sqlite3_connect(PATH); row = con.execute('', (index,)); pass; return row",
            (
                "import functools\nimport os\nkept_sqlite3_connect = functools.cache(sqlite3.connect)\n"
                "os.register_at_fork(after_in_child=kept_sqlite3_connect.cache_clear)\n"
            ),
        ),
        (
            "table = pd.read_csv(self.path, sep=';'); return table.iloc[index]",
            "table = kept_pandas_read_csv(self.path, sep=';'); return table.iloc[index]",
            "import functools\nkept_pandas_read_csv = functools.cache(pd.read_csv)\n",
        ),
        (
            "with open(PATH, 'rb') as f: return json.load(f)[index]",
            "with open(PATH, 'rb') as f: return kept_json_load(f.name)[index]",
            "import functools\nkept_json_load = functools.cache(lambda name: json.load(open(name, 'rb')))\n",
        ),
        ("with open(self.paths[index]) as f: return json.load(f)", "", ""),
        ("return pd.read_csv(self.paths[index])", "", ""),
        ("path = self.root + str(index); return pd.read_csv(path)", "", ""),
        ("table = pd.read_csv(self.path); table['x'] = 1; return table", "", ""),
        ("table = pd.read_csv(self.path); table.drop('x', inplace=True); return table", "", ""),
        ("x = pd.read_csv(self.path); x /= 2; return x", "", ""),
        ("x = read(pd.read_csv(self.path)); x.div_(2); return x", "", ""),
    ],
)
def test_a_file_that_each_sample_opens_is_kept(body: str, edited: str, added: str) -> None:
    """Not where the file may be another one, or what was read is changed."""
    text = KEPT.format(body)
    source = PythonSource(text)

    got = source.apply(source.keep_files(9))

    expected = KEPT.format(edited).replace("DataLoader\n", f"DataLoader\n{added}", 1)
    assert got == (expected if edited else text)


def test_a_kept_file_is_opened_by_each_process(tmp_path: Path) -> None:
    """A child that is forked does not use the handle of its parent."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as written:
        written.writestr("name", b"content")
    source = PythonSource(KEPT.format("with zipfile.ZipFile(PATH) as z: return z, z.read('name')"))
    rows: dict[str, Any] = {"PATH": tmp_path / "a.zip"}
    exec(source.apply(source.keep_files(9)).replace("import pandas as pd\n", ""), rows)
    handle, content = rows["Rows"]()[0]
    assert rows["Rows"]()[1] == (handle, b"content") == (handle, content)

    child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(rows["Rows"]()[0][0] is handle))
    child.start()
    child.join()

    assert child.exitcode == 0
    handle.close()


def test_a_dataset_that_compiles_is_given_to_compile(script: Path) -> None:
    """By the place of the argument, beside arguments that are added; also for a loader that is penstock's already."""
    site = dataclasses.replace(site_of(script), compiles=True, reader=None)

    torchs, ours = (
        {
            each.change: each.edited
            for each in own_candidates(dataclasses.replace(site, library=library))
            if not isinstance(each, str)
        }
        for library in ("torch", "penstock")
    )

    compiled = TRAIN.replace("Dataset\n\n", "Dataset\nimport penstock.torch\n\n", 1)
    compiled = compiled.replace("DataLoader(Rows(), 8", "DataLoader(penstock.torch.compile(Rows()), 8")
    imported = compiled.replace(
        "from torch.utils.data import DataLoader, Dataset",
        "from penstock.torch import DataLoader\nfrom torch.utils.data import Dataset",
    )
    auto = ("shuffle=True", 'shuffle=True, num_workers="auto"')
    assert list(torchs.values())[1:] == [imported, imported.replace(*auto)]
    assert list(ours.values()) == [compiled, compiled.replace(*auto)]
    assert [change.count("compiled") for change in torchs] == [0, 1, 1]


def test_whether_a_dataset_compiles_is_asked_of_compile(tmp_path: Path) -> None:
    """A folder of photographs with torchvision's transforms does, rows do not; neither is changed."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    datasets = pytest.importorskip("torchvision.datasets")
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (40, 30)).save(tmp_path / "cat" / "one.jpg")
    steps = [v2.RandomResizedCrop(8), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]

    folder = datasets.ImageFolder(tmp_path, v2.Compose(steps))

    assert [_compiles(each) for each in (folder, [1, 2], torch.utils.data.Subset(folder, [0]))] == [True, False, True]
    assert type(folder) is datasets.ImageFolder


def test_workers_with_one_thread_are_an_argument_and_a_line(script: Path) -> None:
    """Both are in the patch."""
    diagnosis = diagnosis_of(f"num_workers=2, with {ONE_THREAD}", ONE_THREAD)

    both, line = advised_candidates(diagnosis.advice, site_of(script))

    thread = TRAIN.replace("Dataset\n\n\nclass", "Dataset\ntorch.set_num_threads(1)\n\n\nclass")
    assert both.edited == thread.replace("shuffle=True", "shuffle=True, num_workers=2")
    assert line.edited == thread


@pytest.mark.parametrize("name", ["", "missing.py", "train.py"])
def test_where_the_call_cannot_be_edited_the_line_is_printed(script: Path, name: str) -> None:
    """The arguments are tried from outside, and the text says where they go."""
    site = site_of(script, position=(1, 1, 0, 3))
    site = dataclasses.replace(site, file=name and str(script.with_name(name)))

    fix = find_fix(diagnosis_of("num_workers=3"), site, speeds({"'num_workers': 3": 200.0}), 60.0, lambda _: None)

    assert fix.best is not None
    assert fix.best.candidate.trial.arguments == {"num_workers": 3}
    assert (fix.diff, len(fix.refused)) == ("", 2)
    assert f"goes into {f'{site.file}:1' if name else 'the library that makes the loader'} (" in str(fix)
    assert fix.best.candidate.where.endswith(diagnosis_of("num_workers=3").advice[0].code)
    with pytest.raises(OSError, match="no change of a file"):
        fix.write()


def test_nothing_helps(script: Path) -> None:
    """Each is run once, and listed with its figure."""
    fix = find_fix(diagnosis_of(), site_of(script), speeds({'"auto"': 90.0}), 60.0, lambda _: None)

    lines = str(fix).splitlines()
    assert fix.best is None
    assert lines[0] == "No change that was tried makes the script faster by 5%:"
    assert lines[2].endswith('num_workers="auto": -10% (once)')
    assert len(lines) == 4
    assert (fix.to_json()["file"], fix.to_json()["measured"]) == ("", None)


def test_no_gain_by_chance(script: Path) -> None:
    """A change is a fix if each of two runs or more was faster, and turns end when the order is clear."""
    names = ("steady", "once", "close", "far")
    ratios = {"steady": [1.5, 1.6, 1.55], "once": [2.0, 1.01], "close": [1.4, 1.7, 1.2], "far": [1.2, 1.3]}
    left = {name: list(values) for name, values in ratios.items()}
    runs: list[str] = []

    def run(change: ScriptChange) -> tuple[float, str]:
        name = next(iter(change.sources), "as it is")
        runs.append(name)
        return (100 * left[name].pop(0) if name in left else 100.0), ""

    candidates = [FixCandidate(name, ScriptChange({name: ""})) for name in names]
    clock = iter([0.0, 5.0, 20.0]).__next__
    found = compare_runs(candidates, run, 10.0, clock=clock)

    assert {each.candidate.change: each.ratios for each in found} == {
        name: pytest.approx(values) for name, values in ratios.items()
    }
    assert runs == ["as it is", *names, "as it is", *reversed(names), "as it is", "steady", "close"]
    best = Fix(found, []).best
    assert best is not None
    assert best.candidate.change == "steady"


def test_runs_that_differ_are_repeated() -> None:
    """There are more turns, as long as there is time, until five."""
    ratios = iter([1.5, 2.5, 1.5, 2.5, 1.5, 2.5])

    (found,) = compare_runs(
        [FixCandidate("one", ScriptChange({"one": ""}))],
        lambda change: (next(ratios) if change.sources else 1.0, ""), 10.0, clock=lambda: 0.0,
    )  # fmt: skip

    assert found.ratios == [1.5, 2.5, 1.5, 2.5, 1.5]


def test_a_script_that_cannot_be_run_again_gives_nothing(script: Path) -> None:
    """Neither a fix nor a gain."""
    diagnosis = diagnosis_of("num_workers=3")

    fix = find_fix(diagnosis, site_of(script), lambda _: (0.0, "no"), 60.0, lambda _: None)

    assert (fix.best, diagnosis.advice[0].measured) == (None, None)
    assert str(fix).splitlines()[1] == "  num_workers=3: the script as it is could not be run again: no"


def fix_of(script: Path) -> Fix:
    """A fix of a script."""
    found = [each for each in own_candidates(site_of(script)) if isinstance(each, FixCandidate)]
    return Fix([MeasuredChange(found[0], [1.5, 1.6], "")], [])


def test_the_file_is_written_and_kept(script: Path) -> None:
    """With its mode; through a link; a second time beside the same copy."""
    script.write_bytes(TRAIN.replace("\n", "\r\n").encode("utf-8-sig"))
    script.chmod(0o754)
    before = script.read_bytes()
    link = script.with_name("link.py")
    link.symlink_to(script)

    said = fix_of(link).write()

    kept = script.with_name("train.py.orig")
    assert said == f"{script} is changed; train.py.orig beside it is what it was"
    assert kept.read_bytes() == before
    assert script.read_bytes() == before.replace(
        b"from torch.utils.data import DataLoader, Dataset",
        b"from penstock.torch import DataLoader\r\nfrom torch.utils.data import Dataset",
    )
    assert {path.stat().st_mode & 0o777 for path in (script, kept)} == {0o754}
    assert link.is_symlink()
    assert sorted(path.name for path in script.parent.iterdir()) == ["link.py", "train.py", "train.py.orig"]


def test_a_file_that_has_changed_is_not_written(script: Path) -> None:
    """Nor is one beside which another copy lies."""
    fix = fix_of(script)
    kept = script.with_name("train.py.orig")
    kept.write_text("older")

    with pytest.raises(OSError, match="is there already, with other content"):
        fix.write()
    kept.unlink()
    script.write_text("newer")
    with pytest.raises(OSError, match="has changed since it was read"):
        fix.write()

    assert script.read_text() == "newer"
    assert not kept.exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize(
    "text", [TRAIN, TRAIN.rstrip("\n"), TRAIN.replace("\n", "\r\n"), TRAIN.replace("c", "\x0cc", 0)]
)
def test_the_patch_applies(script: Path, text: str) -> None:
    """It is what `git apply` reads, also without a newline at the end of the file."""
    script.write_bytes(text.encode())
    fix = fix_of(script)

    subprocess.run(["git", "apply", "-"], input=fix.diff.encode(), check=True, cwd=script.parent)

    assert fix.best is not None
    assert script.read_bytes() == fix.best.candidate.edited.encode()


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("num_workers=4", {"num_workers": 4}),
        ("num_workers=4, prefetch_factor=8", {"num_workers": 4, "prefetch_factor": 8}),
        ("persistent_workers=True", {"persistent_workers": True}),
        ("prefetch_factor=None", {"prefetch_factor": None}),
        ("pack the dataset", {}),
        ("batch_size=4", {}),
        ("num_workers=4 and more memory", {}),
    ],
)
def test_changes_that_can_be_made(text: str, change: dict[str, object]) -> None:
    """Only arguments of the loader that change no batch."""
    assert parse_change(text) == change


MAIN = "import inspect, sys\nfrom parts import loading\nsys.exit(f'{__file__} {sys.argv} {loading.__file__} plain')\n"
PARTS = {"train.py": MAIN, "parts/__init__.py": "", "parts/__main__.py": MAIN, "parts/loading.py": "NAME = 'plain'\n"}


@pytest.mark.parametrize("target", [["train.py", "a b"], ["-m", "parts"]], ids=" ".join)
def test_a_script_runs_with_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: list[str]) -> None:
    """In the place of its own files and of its modules', whose names it still has; from the folder it was begun in.

    ``inspect`` finds the other sources.
    """
    (tmp_path / "parts").mkdir()
    for name, text in PARTS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    runs = ScriptRuns(RunOptions(steps=8), target)
    main, loading = (
        tmp_path / name for name in ("parts/__main__.py" if "-m" in target else target[0], "parts/loading.py")
    )
    others = {
        str(main): main.read_text().replace("plain", "{inspect.getsource(loading)}"),
        str(loading): "NAME = 'other'",
    }
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", "")

    plain, changed = (runs.measure_speed(ScriptChange(sources)) for sources in ({}, others))

    arguments = [target[0], "a b"] if "-m" not in target else [str(main)]
    assert plain == (0.0, f"{main} {arguments} {loading} plain")
    assert changed == (0.0, f"{main} {arguments} {loading} NAME = 'other'")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_from_end_to_end(tmp_path: Path) -> None:
    """A file of 8 MB that is read for each row is mapped; the script is written, and its exit code is its own."""
    import numpy as np

    np.save(tmp_path / "rows.npy", np.zeros((4000, 512), np.float32))
    text = TRAIN.replace("import DataLoader, Dataset", "import *")  # so that only one change can be written
    (tmp_path / "train.py").write_text(text)
    done = subprocess.run(
        [
            sys.executable, "-m", "penstock", "doctor", "--steps", "8", "--no-trials", "--budget", "1", "--fix",
            "--write", "--json", "out.json", "train.py",
        ],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=580,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    result = json.loads((tmp_path / "out.json").read_text())["fix"]
    assert done.returncode == 0, done.stderr
    assert result["written"], done.stderr
    assert result["file"] == str(tmp_path / "train.py")
    assert result["diff"] in done.stderr
    assert (tmp_path / "train.py").read_text() == text.replace('"rows.npy"', '"rows.npy", mmap_mode="r"')
    assert (tmp_path / "train.py.orig").read_text() == text
    assert len(result["refused"]) == 2
