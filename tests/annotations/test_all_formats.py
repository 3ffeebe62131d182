"""What every format of annotations keeps to, on a small set of each (`sets.py`) and on damaged copies of it.

A new format adds one line to ``MAKERS`` in `sets.py`.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import penstock as ps
from penstock.annotations import FORMATS, Annotations, read
from penstock.annotations.source import AnnotationSource
from penstock.annotations.summary import AnnotationSummary
from penstock.errors import AnnotationError, ArgumentError, PenstockError
from tests.annotations.memory import reading_from_memory
from tests.annotations.sets import FULL_SETS, HEIGHT, MAKERS, OBJECTS, WIDTH, SetMaker
from tests.effort import IS_PART

PICTURES: Final = frozenset({".jpg"})
"""Files of the sets that are pictures and no annotations."""
HOSTILE: Final[tuple[bytes, ...]] = (
    b"",
    b"-1",
    b"0",
    b"nan",
    b"1e999",
    b"-1e38",
    b"9" * 5000,
    b"1" * 30,
    b"0.5",
    b"null",
    b"true",
    b"[]",
    b"[[[]]]",
    b"{}",
    b'"x"',
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xf0\x9f\x98\x80",
    b"\\ud800",
    b"../../../etc/passwd",
    b"/etc/hosts",
    b"C:\\pictures\\a.jpg",
    b"x" * 300,
    b"\r\n",
    b"\n\n",
    b"<",
    b"</annotation>",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    b"&b;",
    b"&a *a",
    b"#",
    b"\t",
    b", ,",
)
NUMBER_OR_WORD: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?|[A-Za-z_]+|\"[^\"]*\"")


@pytest.fixture(params=list(FORMATS))
def name(request: pytest.FixtureRequest) -> str:
    """Each format in turn."""
    return str(request.param)


@pytest.fixture
def maker(name: str) -> SetMaker:
    """How its set is written."""
    return MAKERS[name]


@pytest.fixture
def folder(maker: SetMaker, tmp_path: Path) -> Path:
    """Its set."""
    folder = tmp_path / "set"
    folder.mkdir()
    maker.write(folder)
    return folder


def files_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Everything below a folder: content, and time of the last change."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def annotation_files_of(folder: Path) -> list[Path]:
    """The files of a set that hold annotations."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix not in PICTURES)


def values_of(annotations: Annotations) -> list[dict[str, Any]]:
    """The records, with the text of each value: a number that is none (NaN) is equal to itself then."""
    return [
        {key: repr(value.tolist() if isinstance(value, np.ndarray) else value) for key, value in record.items()}
        for record in annotations
    ]


def read_damaged(folder: Path, name: str) -> Annotations | None:
    """What is read of a damaged set; None if it is refused. Other exceptions are the caller's.

    An ArgumentError is one of them, unless it says which option decides what the set leaves open.
    """
    try:
        found = read(folder, name, on_error="skip")
    except AnnotationError:
        return None
    except ArgumentError as error:
        if re.search(r"give \w+=", str(error)) is None:
            raise
        return None
    for record in found:
        for path in (record["image"], record.get("mask")):
            assert path is None or ((folder / path).is_file() and ".." not in path)
        assert record["boxes"].dtype == np.float32
        assert record["boxes"].shape == (len(record["labels"]), 4)
        assert np.isfinite(record["boxes"]).all()
        assert ((record["labels"] >= 0) & (record["labels"] < len(found.classes))).all()
    return found


def test_every_format_has_a_set() -> None:
    """A format is registered together with a line in MAKERS; its name is that of its class."""
    assert set(FORMATS) <= set(MAKERS)
    assert set(FORMATS) <= set(FULL_SETS)
    assert all(FORMATS.get(name).name == name for name in FORMATS)


def test_set_reads_as_it_was_written(folder: Path, name: str, maker: SetMaker) -> None:
    """All formats become the same fields: image, size, boxes, labels by name."""
    found = read(folder, name)

    assert found.problems == ()
    assert found.format == name
    assert [Path(record["image"]).stem for record in found] == list(OBJECTS)
    assert all((record["width"], record["height"]) == (WIDTH, HEIGHT) for record in found)
    assert found.classes == maker.classes
    for record, objects in zip(found, OBJECTS.values(), strict=True):
        expected = [box for _, box in objects] if maker.has_boxes else []
        np.testing.assert_allclose(record["boxes"], np.array(expected, np.float32).reshape(-1, 4), atol=1e-3)
        if maker.has_boxes and len(maker.classes) > 1:
            assert [found.classes[label] for label in record["labels"]] == [label for label, _ in objects]


def test_set_is_recognised_by_its_own_format_first(folder: Path, name: str) -> None:
    """``format="auto"`` takes the first format that recognises a source; no earlier one claims the set of another."""
    claiming = [each for each in FORMATS if FORMATS.get(each).recognises(AnnotationSource.open(folder, None))]

    assert claiming
    assert claiming[0] == name
    assert read(folder).format == name


def test_empty_folder_is_claimed_by_none(tmp_path: Path, name: str) -> None:
    """A folder without annotations is of no format; reading it as one is an AnnotationError, or has no records."""
    (tmp_path / "README.md").write_text("nothing here")

    assert not FORMATS.get(name).recognises(AnnotationSource.open(tmp_path, None))
    found = read_damaged(tmp_path, name)
    assert found is None or not found.records


def test_folder_of_images_alone_is_claimed_by_none(folder: Path, name: str) -> None:
    """Images without annotations are no source of annotations."""
    for path in annotation_files_of(folder):
        path.unlink()

    assert not FORMATS.get(name).recognises(AnnotationSource.open(folder, None))
    read_damaged(folder, name)


def test_stray_files_change_nothing(folder: Path, name: str) -> None:
    """A README, a licence and files of the system are no annotations."""
    before = read(folder, name)
    for stray in ("README.md", "LICENSE", ".DS_Store", "Thumbs.db", "._a.jpg"):
        (folder / stray).write_bytes(b"\x00\x01 not an annotation")

    after = read(folder)

    assert after.format == name
    assert values_of(after) == values_of(before)
    assert after.classes == before.classes
    assert after.problems == ()


def test_reading_writes_nothing(folder: Path, name: str) -> None:
    """Reading changes no file of a source, and adds none."""
    before = files_of(folder)

    read(folder, name)

    assert files_of(folder) == before


def test_reading_twice_gives_the_same(folder: Path, name: str) -> None:
    """Records, classes and details depend on the files alone."""
    first, second = read(folder, name), read(folder, name)

    assert values_of(first) == values_of(second)
    assert first.classes == second.classes
    assert first.details == second.details


@pytest.mark.parametrize("damage", ["removed", "emptied"])
def test_damaged_picture_is_left_out_and_listed(folder: Path, name: str, damage: str) -> None:
    """A picture that is missing or no image is left out with a problem that names it; other records stay."""
    before = [record for record in values_of(read(folder, name)) if "b." in record["image"]]
    picture = next(path for path in folder.rglob("a.*") if path.suffix in PICTURES)
    if damage == "removed":
        picture.unlink()
    else:
        picture.write_bytes(b"")

    found = read(folder, name, on_error="skip")

    left = values_of(found)
    for record in (*before, *left):
        record.pop("labels")  # there may be fewer classes
    assert left == before
    assert found.problems
    assert all("a" in f"{problem.image} {problem.file}" and problem.reason for problem in found.problems)


@pytest.mark.parametrize("damage", ["emptied", "cut", "zeros"])
def test_damaged_file_is_refused_or_listed(folder: Path, name: str, damage: str) -> None:
    """Each annotation file in turn: an AnnotationError, or problems; no image is lost without either."""
    for path in annotation_files_of(folder):
        content = path.read_bytes()
        path.write_bytes({"emptied": b"", "cut": content[: len(content) * 2 // 3], "zeros": bytes(64)}[damage])

        found = read_damaged(folder, name)

        assert found is None or found.problems or len(found) == len(OBJECTS), path.name
        path.write_bytes(content)


def test_removed_file_is_refused_or_listed(folder: Path, name: str) -> None:
    """Without one of its annotation files a source is refused, has problems, or does not annotate the image."""
    for path in annotation_files_of(folder):
        content = path.read_bytes()
        path.unlink()

        found = read_damaged(folder, name)

        assert found is None or found.problems or {Path(record["image"]).stem for record in found} <= set(OBJECTS)
        path.write_bytes(content)


@pytest.mark.parametrize("encoding", ["crlf", "utf-8-sig", "utf-16"])
def test_text_in_other_forms_reads_alike(folder: Path, name: str, encoding: str) -> None:
    """Line ends of Windows, a mark at the beginning and UTF-16 by its mark change nothing."""
    before = read(folder, name)
    for path in annotation_files_of(folder):
        if path.suffix != ".png":
            text = path.read_text(encoding="utf-8")
            if encoding == "crlf":
                path.write_bytes(text.replace("\n", "\r\n").encode())
            else:
                path.write_bytes(text.replace('encoding="utf-8"', "").encode(encoding))

    after = read(folder)

    assert after.format == name
    assert values_of(after) == values_of(before)
    assert after.classes == before.classes


def test_unknown_options_and_policies_are_refused(folder: Path, name: str) -> None:
    """An option that the format does not have is an ArgumentError that lists those that it has."""
    with pytest.raises(ArgumentError, match="has the options"):
        read(folder, name, no_such_option=1)
    with pytest.raises(ArgumentError, match="on_error must be one of raise, skip"):
        read(folder, name, on_error="ignore")


def test_unknown_split_is_refused(folder: Path, name: str) -> None:
    """A split that the source does not have is an ArgumentError."""
    with pytest.raises(ArgumentError, match="split"):
        read(folder, name, split="no such split")


@pytest.mark.parametrize("name", FULL_SETS)
def test_full_set_is_read_without_problems(tmp_path: Path, name: str) -> None:
    """What is damaged below is whole before."""
    FULL_SETS[name](tmp_path)

    found = read(tmp_path, name)

    assert found.problems == ()
    assert len(found) >= 1


@pytest.mark.parametrize("full", [False, True], ids=["plain", "full"])
def test_mutations_are_refused_or_listed(tmp_path: Path, name: str, maker: SetMaker, full: bool) -> None:
    """Bytes flipped, cut, inserted, values replaced: an AnnotationError or listed problems, no other exception."""
    _check_mutations(FULL_SETS[name] if full else maker.write, tmp_path, name, range(300), 3)


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True], ids=["plain", "full"])
def test_many_mutations_are_refused_or_listed(tmp_path: Path, name: str, maker: SetMaker, full: bool) -> None:
    """As above, 20,000 of each format; a quarter of them in CI."""
    _check_mutations(
        FULL_SETS[name] if full else maker.write, tmp_path, name, range(1000, 3500 if IS_PART else 11_000), 50
    )


def _check_mutations(write: Callable[[Path], None], folder: Path, name: str, seeds: range, each: int) -> None:
    """Read damaged copies of one file, from memory; compare every ``each``-th with what is raised for it."""
    write(folder)
    contents = {path: path.read_bytes() for path in annotation_files_of(folder)}
    paths = list(contents)
    with reading_from_memory(contents) as held:
        for seed in seeds:
            chance = random.Random(seed)
            path = chance.choice(paths)
            held[path] = mutate(contents[path], chance)
            try:
                found = read_damaged(folder, name)
                if seed % each == 0:
                    _check_raising(folder, name, found)
            except Exception as error:
                error.add_note(f"seed {seed}: {path.name} holds {held[path][:4000]!r}")
                raise
            held[path] = contents[path]


def _check_raising(folder: Path, name: str, found: Annotations | None) -> None:
    """``on_error="raise"`` refuses exactly what "skip" counts."""
    if found is not None and not found.problems:
        assert values_of(read(folder, name)) == values_of(found)
        return
    with pytest.raises(PenstockError) as caught:
        read(folder, name)
    if found is not None:
        assert isinstance(caught.value, AnnotationError)
        assert caught.value.message.startswith(f"{len(found.problems):,} problem")
        assert all(str(problem) in caught.value.message for problem in found.problems[:50])


def mutate(content: bytes, chance: random.Random) -> bytes:
    """A damaged copy of a file; several damages are rarer."""
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        content = chance.choice(MUTATIONS)(content, chance)
    return content


def _flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content or b"\0")
    for _ in range(chance.choice((1, 1, 3, 20))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _remove(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content) + 1)
    return content[:start] + content[start + chance.choice((1, 5, 40)) :]


def _insert(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content) + 1)
    return content[:start] + chance.choice(HOSTILE) + content[start:]


def _repeat(content: bytes, chance: random.Random) -> bytes:
    start, end = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    return content[:end] + content[start:end] * chance.choice((1, 2, 30)) + content[end:]


def _replace(content: bytes, chance: random.Random) -> bytes:
    """A value of the text becomes another: a hostile one, or one of the same file."""
    found = list(NUMBER_OR_WORD.finditer(content))
    if not found:
        return _flip(content, chance)
    place = chance.choice(found)
    value = chance.choice((*HOSTILE, chance.choice(found).group(), chance.choice(found).group()))
    return content[: place.start()] + value + content[place.end() :]


MUTATIONS: Final[tuple[Callable[[bytes, random.Random], bytes], ...]] = (
    _flip,
    _cut,
    _remove,
    _insert,
    _repeat,
    _replace,
    _replace,
    _replace,
)


def test_images_that_no_annotation_names_are_listed(folder: Path, name: str, tmp_path: Path) -> None:
    """They are no problem, and in nobody's way; what is packed says which they are. YOLO takes each image."""
    image = min(path for path in folder.rglob("*.jpg"))
    shutil.copy(image, image.with_name("zz.jpg"))
    (folder / "elsewhere").mkdir()
    shutil.copy(image, folder / "elsewhere" / "yy.jpg")
    is_apart = image.parent != folder
    expected = [image.with_name("zz.jpg").relative_to(folder).as_posix()]
    expected = sorted([*expected, *([] if is_apart else ["elsewhere/yy.jpg"])])

    found = read(folder, name, on_error="skip")
    summary = AnnotationSummary.of(found)
    report = ps.pack(None, tmp_path / "p.lmdb", annotations=folder, format=name, on_error="skip")

    if name in {"yolo", "mask_folders"}:
        assert "images_without_annotations" not in found.details
        return
    assert list(found.details["images_without_annotations"]) == list(summary.unnamed) == expected
    assert summary.ok
    assert f"such as {expected[0]}" in "".join(summary.lines())
    assert [key for key, reason in report.skipped if reason == "an image that no annotation names"] == expected
