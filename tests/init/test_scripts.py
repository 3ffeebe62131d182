"""The scripts of ``penstock init`` train, are killed in the middle of an epoch, and continue at the same place."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock as ps
from penstock.errors import ArgumentError
from penstock.init import TASKS, make_script, recognise
from tests.annotations.sets import MAKERS
from tests.effort import mark_slow

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
COUNT = 12
_draw = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, in which scripts run with one thread."""
    monkeypatch.chdir(tmp_path)
    before, handler = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(before)
    signal.signal(signal.SIGINT, handler)  # scripts set their own


def write_images(folder: str, names: list[str]) -> None:
    """Pictures of 40 x 50 pixels."""
    for name in names:
        Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(_draw.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(Path(folder, name))


def write_classes(folder: str = "data") -> None:
    """Two classes."""
    write_images(folder, [f"{'cat' if number % 2 else 'dog'}/{number}.jpg" for number in range(COUNT)])


def write_parts() -> None:
    """A folder for training and one for validation."""
    write_classes("data/train")
    write_classes("data/valid")


def write_store(name: str) -> Callable[[], None]:
    """The same as a store of another kind."""

    def write() -> None:
        write_classes("photos")
        Path("data").mkdir()
        ps.convert("photos", f"data/{name}")

    return write


def write_table() -> None:
    """A table beside the images, with a class and a number."""
    write_images("data", [f"images/{number}.jpg" for number in range(COUNT)])
    rows = [f"images/{number}.jpg,{'cat' if number % 2 else 'dog'},{number / 2}" for number in range(COUNT)]
    Path("data/labels.csv").write_text("\n".join(["file,label,age", *rows, ""]))


def write_split_table() -> None:
    """The same, with a column that says the part of each record."""
    write_table()
    head, *rows = Path("data/labels.csv").read_text().splitlines()
    rows = [f"{row},{'train' if number % 3 else 'val'}" for number, row in enumerate(rows)]
    Path("data/labels.csv").write_text("\n".join([f"{head},split", *rows, ""]))


def write_boxes(form: str) -> Callable[[], None]:
    """Annotations of a format, with boxes of two classes."""

    def write() -> None:
        write_classes("photos")
        images = [path.read_bytes() for path in sorted(Path("photos").rglob("*.jpg"))]
        boxes = np.array([[5, 5, 25, 30]], np.float32)
        records = [{"image": image, "boxes": boxes, "labels": np.array([n % 2])} for n, image in enumerate(images)]
        schema: dict[str, str | ps.Field | None] = {
            "image": "image",
            "boxes": "boxes",
            "labels": ps.Field("int64[*]", ("cat", "dog")),
        }
        ps.pack(records, "boxes.lmdb", schema=schema)
        ps.convert("boxes.lmdb", "data", to_layout=form)

    return write


def write_points() -> None:
    """COCO's keypoints."""
    names = [f"{number}.jpg" for number in range(COUNT)]
    write_images("data/images", names)
    images = [{"id": n, "file_name": name, "width": 50, "height": 40} for n, name in enumerate(names)]
    points = {"keypoints": [10, 10, 2, 20, 12, 2, 15, 20, 0], "num_keypoints": 2, "bbox": [5, 5, 20, 25], "area": 500}
    objects = [{"id": n + 1, "image_id": n, "category_id": 1, "iscrowd": 0, **points} for n in range(COUNT)]
    person = {"id": 1, "name": "person", "keypoints": ["left", "right", "chin"]}
    text = json.dumps({"images": images, "annotations": objects, "categories": [person]})
    Path("data/annotations.json").write_text(text)


def write_masks() -> None:
    """A mask beside each image."""
    write_images("data/images", [f"{number}.jpg" for number in range(COUNT)])
    Path("data/masks").mkdir()
    for number in range(COUNT):
        mask = np.zeros((40, 50), np.uint8)
        mask[:, 20:], mask[0] = 2, 255
        Image.fromarray(mask).save(f"data/masks/{number}.png")


KINDS: dict[str, tuple[Callable[[], None], str, str]] = {
    "classes": (write_classes, "classification", "a sub-folder for each of 2 classes (cat, dog), 12 records"),
    "parts": (write_parts, "classification", "12 records in train, and a part valid"),
    "table": (write_table, "classification", "the table labels.csv with the fields image, label, age"),
    "numbers": (write_table, "regression", "the table labels.csv"),
    "split": (write_split_table, "classification", "12 records, of which the column split names train and val"),
    "lmdb": (write_store("set.lmdb"), "classification", "a store of the kind 'lmdb', 12 records"),
    "tar": (write_store("set.tar"), "classification", "tar (WebDataset): 12 records"),
    "hdf5": (write_store("set.h5"), "classification", "hdf5, written by penstock: 12 records"),
    "coco": (write_boxes("coco"), "detection", "annotations of the format 'coco'"),
    "voc": (write_boxes("voc"), "detection", "annotations of the format 'voc'"),
    "yolo": (write_boxes("yolo"), "detection", "annotations of the format 'yolo'"),
    "masks": (write_masks, "segmentation", "annotations of the format 'mask_folders'"),
    "points": (write_points, "landmarks", "annotations of the format 'coco'"),
}


NEEDS = {"yolo": "yaml", "hdf5": "h5py"}


class KilledError(BaseException):
    """What ends a script without a chance to do anything."""


def run_script(monkeypatch: pytest.MonkeyPatch, saves: int | None = None) -> str:
    """Run train.py, and return the last line; it is ended right after so many saves."""
    made, replace = 0, os.replace

    def count(source: Any, target: Any) -> None:
        nonlocal made
        replace(source, target)
        made += str(target) == "train.pt"
        if made == saves:
            raise KilledError

    lines: list[str] = []
    with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(os, "replace", count)
        patch.setattr("builtins.print", lambda line, **_: lines.append(line))
        if saves is not None:
            stack.enter_context(pytest.raises(KilledError))
        runpy.run_path("train.py", run_name="__main__")
    return "\n".join(lines)


QUICK = ("classes", "table", "numbers", "split", "tar", "hdf5", "coco", "masks", "points")
"""Each task; files, a table, and containers."""


@pytest.mark.parametrize("kind", mark_slow(KINDS, QUICK))
def test_a_killed_run_continues_at_the_same_place(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The script for each kind of data trains; weights and results are those of a run that was not killed."""
    write, task, words = KINDS[kind]
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    write()
    found = recognise(Path("data"), task)
    text = make_script(found, Path("train.py"))
    assert (found.task, found.problems) == (task, ())
    assert words in found.reason
    for given, short in (("SEED = 10, ", "SEED = 2, "), ("SAVE_STEPS = 100", "SAVE_STEPS = 1")):
        assert given in text
        text = text.replace(given, short)
    Path("train.py").write_text(text)

    whole = run_script(monkeypatch)
    Path("train.pt").rename("whole.pt")
    stopped = run_script(monkeypatch, 2)
    resumed = run_script(monkeypatch)

    assert stopped == ""
    assert resumed == f"continued in epoch 1, after step 2\n{whole}"
    one, other = (torch.load(name) for name in ("whole.pt", "train.pt"))
    for name, values in one["network"].items():
        assert torch.equal(values, other["network"][name]), name
    assert one["epoch"] == other["epoch"] == 2


def test_a_column_says_which_records_are_of_which_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a split of the script's own; and a script that is done says so when it is run again."""
    write_split_table()
    text = make_script(recognise(Path("data")), Path("train.py"))
    Path("train.py").write_text(text.replace("SEED = 10, ", "SEED = 1, "))

    first, again = run_script(monkeypatch), run_script(monkeypatch)

    assert first.endswith("of 4 images right")
    assert again == "all epochs are done"


def test_every_task_has_a_script() -> None:
    """What is recognised can be written."""
    assert {task for _, task, _ in KINDS.values()} == set(TASKS)


@pytest.mark.parametrize("kind", ["classes", "numbers", "split", "coco", "masks", "points", "landmarks"])
def test_scripts_are_as_the_linter_wants_them(kind: str) -> None:
    """Whatever the task, ruff finds nothing, and would format nothing anew."""
    write, task, _ = KINDS.get(kind, (write_point_table, "landmarks", ""))
    write()
    Path("train.py").write_text(make_script(recognise(Path("data"), task), Path("train.py")))
    ruff = Path(sys.executable).with_name("ruff")

    checks = [
        "check",
        "--isolated",
        "--select",
        "E,F,I,B,UP,D1,ANN",
        "--ignore",
        "ANN202,B905,D103",
        "--line-length",
        "120",
    ]
    for command in (checks, ["format", "--isolated", "--check", "--diff", "--line-length", "120"]):
        done = subprocess.run([ruff, *command, "train.py"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_that_fits_is_taken_and_the_others_are_named() -> None:
    """A table with a class and a number allows two tasks; the images alone would be a folder of classes."""
    write_table()

    found = recognise(Path("data"))

    assert found.task == "classification"
    assert found.others[0] == "data for regression (--task regression)"
    assert found.others[1:] == ("annotations of the format 'path_list'",), "the images are in one folder"


def test_shards_are_one_store() -> None:
    """A folder of files that a kind reads together."""
    write_classes("photos")
    Path("data").mkdir()
    ps.convert("photos", "data/set.tar", to_options={"shard_records": 5})

    found = recognise(Path("data"))

    assert found.records == COUNT
    assert (found.form.path, found.others) == (Path("data"), ())


@pytest.mark.parametrize("name", ["data/labels.csv", "data/images"])
def test_a_file_or_a_folder_is_given(name: str) -> None:
    """A table alone is recognised; a folder of images without classes is not."""
    write_table()

    if name.endswith(".csv"):
        assert recognise(Path(name)).form.path == Path(name)
    else:
        with pytest.raises(ArgumentError, match="images without sub-folders are one class"):
            recognise(Path(name))


@pytest.mark.parametrize(
    ("names", "task", "words"),
    [
        ([], None, "the folder is empty"),
        (["notes.txt"], None, "nothing in data is recognised"),
        (["a.jpg", "b.jpg"], None, "images without sub-folders are one class"),
        (["cat/a.jpg", "dog/b.jpg"], "detection", "there is nothing for the task detection"),
        (["cat/a.jpg"], "sorting", "task must be one of"),
    ],
)
def test_what_is_not_recognised_is_refused(names: list[str], task: str | None, words: str) -> None:
    """In a sentence that says what is expected."""
    Path("data").mkdir()
    write_images("data", [name for name in names if name.endswith(".jpg")])
    for name in names:
        Path("data", name).touch()

    with pytest.raises(ArgumentError, match=words) as caught:
        recognise(Path("data"), task)

    assert "\n" not in caught.value.message


def test_names_of_data_cannot_become_code() -> None:
    """Quotes, backslashes and newlines in names of folders and classes stay text."""
    name = 'da"""ta\\\nimport os'
    write_images(name, ['c"""at\n/0.jpg', "dog\\/1.jpg"])

    text = make_script(recognise(Path(name)), Path('tr"""ain\n.py'))

    code = compile(text, "train.py", "exec")
    assert repr(Path(name).name) in text
    assert code.co_consts[0].count("Written by `penstock init`") == 1
    assert "\nimport os\nimport signal\n" in text
    assert text.count("\nimport os") == 1


def test_packs_are_not_written_into_the_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`penstock init .` names a folder beside the source."""
    write_classes()
    monkeypatch.chdir(folder / "data")

    text = make_script(recognise(Path()), Path("train.py"))

    assert 'PACKS = Path("../data-packs")' in text


def test_annotations_with_problems_are_said(folder: Path) -> None:
    """They are counted, and the script leaves them out."""
    write_points()
    Path("data/images/0.jpg").unlink()

    found = recognise(Path("data"))

    assert len(found.problems) == 1
    assert "0.jpg" in found.problems[0].reason


def test_broken_and_missing_files_of_a_table_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be packed is said, and the others are trained on; a changed source is packed again on demand."""
    write_table()
    Path("data/images/3.jpg").unlink()
    Path("data/images/4.jpg").write_bytes(b"broken")
    text = make_script(recognise(Path("data")), Path("train.py"))
    Path("train.py").write_text(text.replace("SEED = 10, ", "SEED = 1, "))

    first = run_script(monkeypatch).splitlines()
    Path("data/images/5.jpg").write_bytes(b"broken, too")
    with pytest.raises(ArgumentError, match="--overwrite"):
        run_script(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["train.py", "--overwrite"])
    again = run_script(monkeypatch).splitlines()

    assert [line.partition(": ")[2][:12] for line in sorted(first[:-1])] == ["images/3.jpg", "images/4.jpg"]
    assert [line.partition(": ")[2][:12] for line in sorted(again[:-1])] == [
        "images/3.jpg",
        "images/4.jpg",
        "images/5.jpg",
    ]
    assert "epoch 1" in first[-1]
    assert "epoch 1" in again[-1]


def test_help_is_printed_and_nothing_is_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the script is called with; no pack is written, no step is taken."""
    write_classes()
    Path("train.py").write_text(make_script(recognise(Path("data")), Path("train.py")))
    monkeypatch.setattr(sys, "argv", ["train.py", "--help"])
    lines: list[str] = []
    monkeypatch.setattr("builtins.print", lines.append)

    with pytest.raises(SystemExit) as ended:
        runpy.run_path("train.py", run_name="__main__")

    assert not ended.value.code
    assert "python train.py --overwrite  # begins anew" in lines[0]
    assert sorted(each.name for each in folder.iterdir()) == ["data", "train.py"]


def test_an_interrupt_ends_in_a_sentence_after_a_saved_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C: exit code 130, no traceback, and the run continues after the step that was under way."""
    write_classes()
    text = make_script(recognise(Path("data")), Path("train.py"))
    step = "            optimizer.step()\n"
    assert text.count(step) == 1
    Path("train.py").write_text(
        text.replace("SEED = 10, ", "SEED = 1, ").replace(step, f"{step}            interrupt()\n")
    )
    presses = iter([signal.SIGINT])

    def interrupt() -> None:
        for number in presses:
            signal.raise_signal(number)

    monkeypatch.setattr("builtins.interrupt", interrupt, raising=False)

    lines: list[str] = []
    monkeypatch.setattr("builtins.print", lambda line, **_: lines.append(line))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path("train.py", run_name="__main__")
    runpy.run_path("train.py", run_name="__main__")

    assert ended.value.code == 130
    assert lines[:2] == ["stopped; run it again, and it continues", "continued in epoch 1, after step 1"]
    assert "epoch 1" in lines[2]


def write_gaps() -> None:
    """A table whose classes and numbers are missing in some rows, as programs write it."""
    write_table()
    head, *rows = Path("data/labels.csv").read_text().splitlines()
    cells = [row.split(",") for row in rows]
    for number, (label, age) in {3: ("", "NaN"), 8: ("", ""), 9: ("cat ", "NA")}.items():
        cells[number][1:] = label, age
    Path("data/labels.csv").write_text("\n".join([head, *map(",".join, cells), ""]))


def write_number_gaps() -> None:
    """The same with numbers for classes, and with parts."""
    write_gaps()
    head, *rows = Path("data/labels.csv").read_text().replace("cat", "1").replace("dog", "0").splitlines()
    rows = [f"{row},{'train ' if number % 3 else 'Val'}" for number, row in enumerate(rows)]
    Path("data/labels.csv").write_text("\n".join([f"{head},split", *rows, ""]))


def write_point_table() -> None:
    """A table of landmarks, some of them missing."""
    write_images("data", [f"{number}.jpg" for number in range(COUNT)])
    rows = [[str(5 * k + axis + number) for k in range(5) for axis in (0, 1)] for number in range(COUNT)]
    rows[2][3], rows[4] = "NaN", [""] * 10
    lines = [",".join([f"{number}.jpg", *row]) for number, row in enumerate(rows)]
    head = ",".join(["file", *(f"{axis}{k}" for k in range(1, 6) for axis in "xy")])
    Path("data/landmarks.csv").write_text("\n".join([head, *lines, ""]))


def write_store_of_gaps() -> None:
    """A pack whose records lack classes, numbers and points."""
    images = [np.full((20, 30, 3), number, np.uint8) for number in range(COUNT)]
    records = [
        {
            "image": image,
            "label": number % 2 if number % 4 else None,
            "age": number / 2 if number % 3 else None,
            "spots": np.full((4, 3), 2, np.float32) if number % 5 else None,
        }
        for number, image in enumerate(images)
    ]
    Path("data").mkdir()
    ps.pack(records, "data/set.lmdb", schema={"spots": "keypoints", "label": "label", "image": "image"})


def write_crowds() -> None:
    """COCO with crowds, objects without points, and images without objects."""
    write_points()
    text = json.loads(Path("data/annotations.json").read_text())
    for number, each in enumerate(text["annotations"]):
        if number % 3 == 0:
            each.update(iscrowd=1, segmentation={"size": [40, 50], "counts": [100, 50, 1850]})
        if number % 3 == 1:
            del each["keypoints"], each["num_keypoints"]
    text["annotations"] = text["annotations"][:-2]
    Path("data/annotations.json").write_text(json.dumps(text))


FOREIGN: dict[str, Callable[[], None]] = {
    "gaps": write_gaps,
    "number gaps": write_number_gaps,
    "landmarks": write_point_table,
    "store": write_store_of_gaps,
    "crowds": write_crowds,
    **{name: functools.partial(maker.write, Path("data")) for name, maker in MAKERS.items()},
}
"""Sources with gaps, and a small one of each format of annotations."""


@pytest.mark.filterwarnings("ignore:.*is read as a missing value", "ignore:.*some records have no value")
@pytest.mark.parametrize("kind", FOREIGN)
def test_scripts_train_on_what_other_people_have(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Each task of each source runs to its end: records without a value are left out, whatever else is missing."""
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    FOREIGN[kind]()
    first = recognise(Path("data"))
    tasks = [first.task, *(task for task in TASKS if f"(--task {task})" in " ".join(first.others))]

    for task in tasks:
        text = make_script(recognise(Path("data"), task), Path("train.py"))
        Path("train.py").write_text(text.replace("SEED = 10, ", "SEED = 1, "))
        Path("train.pt").unlink(missing_ok=True)
        said = run_script(monkeypatch)

        assert "epoch 1, step " in said
        assert kind in MAKERS or "nan" not in said, said
        assert kind != "number gaps" or said.endswith(("of 3 images right", "on 2 images")), said
    assert tasks == {
        "gaps": ["classification", "regression"], "number gaps": ["classification", "regression"],
        "landmarks": ["landmarks"], "store": ["landmarks", "classification", "regression"],
        "crowds": ["landmarks", "detection"], "path_list": ["classification"],
        "mask_folders": ["segmentation"], "retinaface": ["landmarks", "detection"],
    }.get(kind, ["detection"])  # fmt: skip


def test_landmarks_of_a_table_and_numbers_are_not_mirrored() -> None:
    """A mirror would exchange left and right points without their names, and change the sign of an angle."""
    write_point_table()
    points = make_script(recognise(Path("data")), Path("train.py"))
    write_table()
    number = make_script(recognise(Path("data/labels.csv"), "regression"), Path("train.py"))

    assert 'FIELDS = ("image", "keypoints")\nPOINTS = 5  # of an image' in points
    assert "Flip" not in points + number


def test_a_single_record_is_refused() -> None:
    """In a sentence, not by the script."""
    write_images("data", ["a/0.jpg"])
    Path("data/t.csv").write_text("file,label\na/0.jpg,cat\n")

    with pytest.raises(ArgumentError, match="it has 1 record; a script trains on one"):
        recognise(Path("data/t.csv"))
