"""Lists that name one image very often, or very many that are missing; what is kept of them is bounded."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.annotations import read, records, xml
from penstock.annotations.cvat import format as cvat
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError
from tests.annotations.sets import FULL_SETS, WIDTH, write_image, write_text

MISSING = 300


def write_names(folder: Path, form: str, names: list[str]) -> None:
    """A list of a format."""
    write_image(folder / "images/a.png")
    if form == "yolo":
        write_text(folder / "data.yaml", "names: [dog]\ntrain: train.txt\n")
        write_text(folder / "labels/a.txt", "0 .5 .5 .2 .2\n")
        write_text(folder / "train.txt", "".join(f"images/{name}.png\n" for name in names))
    elif form == "path_list":
        write_text(folder / "list.txt", "".join(f"images/{name}.png 0\n" for name in names))
    elif form == "retinaface":
        write_text(folder / "label.txt", "".join(f"# {name}.png\n1 1 9 9\n" for name in names))
    else:
        images = [{"id": number, "file_name": f"images/{name}.png"} for number, name in enumerate(names)]
        write_text(folder / "a.json", json.dumps({"images": images, "annotations": [], "categories": []}))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each path is asked for: as a folder to list, or as a file."""
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        ask: Callable[..., object] = getattr(os, name)

        def count_and_ask(*args: object, **options: object) -> object:
            counts.update([f"{name} {args[0]}"])
            return ask(*args, **options)

        monkeypatch.setattr(os, name, count_and_ask)

    for name in ("scandir", "stat", "lstat"):
        count(name)
    return counts


@pytest.mark.parametrize("form", ["yolo", "path_list", "retinaface", "coco"])
def test_missing_images_cost_no_request_each(tmp_path: Path, form: str, asked: Counter[str]) -> None:
    """A folder is listed once for all of the names of a list, so that a million missing ones end soon."""
    write_names(tmp_path, form, ["a", *(f"m{number}" for number in range(MISSING))])
    asked.clear()

    found = read(tmp_path, form, on_error="skip")

    assert [record["image"] for record in found] == ["images/a.png"]
    assert len(found.problems) == MISSING
    assert "no image" in found.problems[-1].reason
    assert not [path for path in asked if "/m1" in path]
    assert sum(asked.values()) < MISSING / 3


@pytest.mark.parametrize("form", ["yolo", "path_list", "retinaface", "coco"])
def test_one_image_named_often_is_looked_for_once(
    tmp_path: Path, form: str, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a name is of is remembered."""
    write_names(tmp_path, form, ["a"] * MISSING)
    looked: Counter[str] = Counter()
    find = AnnotationSource._find_image

    def count_and_find(
        source: AnnotationSource, name: str, folders: tuple[Path, ...], split: str | None
    ) -> Path | None:
        looked.update([name])
        return find(source, name, folders, split)

    monkeypatch.setattr(AnnotationSource, "_find_image", count_and_find)
    asked.clear()

    found = read(tmp_path, form, on_error="skip")

    assert [record["image"] for record in found] == ["images/a.png"]
    assert list(looked.values()) == [1]
    assert sum(asked.values()) < MISSING / 3


def test_names_of_a_list_of_voc_are_read_once(tmp_path: Path, asked: Counter[str]) -> None:
    """A name that is listed again, and one without a file, are problems of the line of the list."""
    FULL_SETS["voc"](tmp_path)
    names = ["a"] * MISSING + [f"m{number}" for number in range(MISSING)]
    (tmp_path / "ImageSets/Main").mkdir(parents=True, exist_ok=True)
    for path in (tmp_path / "ImageSets/Main").iterdir():
        path.unlink()
    write_text(tmp_path / "ImageSets/Main/train.txt", "\n".join(names))
    asked.clear()

    found = read(tmp_path, "voc", split="train", on_error="skip")

    assert [Path(record["image"]).stem for record in found] == ["a"]
    lines = [(problem.file, problem.line) for problem in found.problems]
    assert lines == [("ImageSets/Main/train.txt", line) for line in range(2, 2 * MISSING + 1)]
    assert "is listed already" in found.problems[0].reason
    assert "there is no Annotations/m0.xml" in found.problems[MISSING - 1].reason
    assert sum(count for path, count in asked.items() if "/a." in path) < MISSING / 3


def test_a_name_above_the_length_of_paths_is_no_image(tmp_path: Path) -> None:
    """An image whose name has 4,096 characters is found by its end; a longer name is not looked for."""
    write_image(tmp_path / "a.png")
    source = AnnotationSource.open(tmp_path, None)

    assert source.find_image("x/" * 2045 + "/a.png") == tmp_path / "a.png"
    assert source.find_image("x/" * 2046 + "/a.png") is None
    assert source.find_image("x/" * 2_000_000 + "a.png") is None


def test_images_behind_links_and_in_folders_that_must_not_be_listed_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a folder cannot be listed, its files are asked for; a link to nothing is no image when it is read."""
    write_image(tmp_path / "apart/a.png")
    (tmp_path / "set").mkdir()
    (tmp_path / "set/images").symlink_to(tmp_path / "apart")
    (tmp_path / "set/b.png").symlink_to(tmp_path / "apart/a.png")
    (tmp_path / "set/lost.png").symlink_to(tmp_path / "nothing")
    names = ["images/a.png", "images/A.PNG", "b.PNG", "lost.png", "b.png/a.png", "images"]
    expected = [tmp_path / "set/images/a.png", None, tmp_path / "set/b.png", tmp_path / "set/lost.png", None, None]

    found = list(map(AnnotationSource.open(tmp_path / "set", None).find_image, names))
    source = AnnotationSource.open(tmp_path / "set", None)
    assert source.image_files
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", _refuse)
        refused = list(map(source.find_image, names))

    assert found == refused == expected


def _refuse(folder: object) -> None:
    raise PermissionError(13, "Permission denied", folder)


def write_coco(folder: Path, annotations: list[dict[str, object]]) -> None:
    """One image and one class, with annotations."""
    write_image(folder / "a.png")
    content = {"images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 1, "name": "dog"}]}
    write_text(folder / "a.json", json.dumps({**content, "annotations": annotations}))


def test_problems_above_a_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last problem says how many are not listed, and the error counts all."""
    monkeypatch.setattr(records, "_MAX_PROBLEMS", 3)
    write_coco(tmp_path, [{}] * 10)

    found = read(tmp_path, "coco", on_error="skip")

    assert [problem.reason[:14] for problem in found.problems[:3]] == [f"annotations[{row}]" for row in range(3)]
    assert str(found.problems[3]) == "a.json: there are 7 more problems, which are counted and not listed (not listed)"
    assert len(found.problems) == 4
    assert found.details["problems_not_listed"] == 7
    with pytest.raises(AnnotationError, match=r"^10 problems in the annotations"):
        read(tmp_path, "coco")


def test_images_of_problems_that_are_not_listed_are_not_called_unnamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which images no annotation names is not known any more."""
    for name in ("a", "b", "c"):
        write_image(tmp_path / f"{name}.png")
    sizes = {"a": WIDTH, "b": 1, "c": 2}
    images = [{"id": name, "file_name": f"{name}.png", "width": size, "height": 32} for name, size in sizes.items()]
    write_text(tmp_path / "a.json", json.dumps({"images": images, "annotations": [], "categories": []}))
    monkeypatch.setattr(records, "_MAX_PROBLEMS", 1)

    found = read(tmp_path, "coco", on_error="skip")

    assert [record["image"] for record in found] == ["a.png"]
    assert "images_without_annotations" not in found.details


@pytest.mark.parametrize(("limit", "value"), [("_MAX_FIELDS", 4), ("_MAX_VALUES", 24)])
def test_fields_of_objects_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    """Each object has a value of each field that one has: objects with a field each would need the square of them."""
    write_coco(
        tmp_path, [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], f"k{number}": 1} for number in range(5)]
    )

    assert len(read(tmp_path, "coco")[0]["labels"]) == 5
    monkeypatch.setattr(records, limit, value)
    with pytest.raises(AnnotationError, match=r"objects must have at most .* got 5 objects with 6 fields"):
        read(tmp_path, "coco")


def test_elements_of_a_document_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An element takes a hundred times as much memory as its text."""
    monkeypatch.setattr(xml, "_MAX_ELEMENTS", 5)

    assert len(xml.parse_xml(b"<a>" + b"<b/>" * 4 + b"</a>").children) == 4
    with pytest.raises(ValueError, match="line 1: it must have at most 5 elements"):
        xml.parse_xml(b"<a>" + b"<b/>" * 5 + b"</a>")


def test_text_between_many_elements_is_joined() -> None:
    """The text of an element is what lies between its children, in order."""
    root = xml.parse_xml(b"<a>x<b>1</b>y<b/>z&amp;<!-- -->w</a>")

    assert (root.text, root.children[0].text, root.children[1].text) == ("xyz&w", "1", "")


def test_shapes_of_tracks_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A track of two elements has a box in each frame between them."""
    for frame in range(4):
        write_image(tmp_path / f"images/frame_{frame:06d}.png")
    box = '<box frame="{}" xtl="1" ytl="1" xbr="9" ybr="9"/>'
    track = f'<track label="dog">{box.format(0)}{box.format(3)}</track>'
    write_text(tmp_path / "annotations.xml", f"<annotations>{track * 2}</annotations>")

    assert sum(len(record["labels"]) for record in read(tmp_path, "cvat")) == 8
    monkeypatch.setattr(cvat, "_MAX_TRACKED", 7)
    with pytest.raises(AnnotationError, match="its tracks must have at most 7 shapes in all frames together"):
        read(tmp_path, "cvat")


@pytest.mark.parametrize("extra", [0, 1])
def test_places_of_splits_are_bounded(tmp_path: Path, extra: int) -> None:
    """A data.yaml names at most 1,000 folders and lists."""
    write_names(tmp_path, "yolo", ["a"])
    places = "".join(f"- q{number}\n" for number in range(999 + extra))
    write_text(tmp_path / "data.yaml", f"names: [dog]\ntrain:\n- images\n{places}")

    if extra:
        with pytest.raises(AnnotationError, match="its splits must be at most 1,000 folders and lists, got 1,001"):
            read(tmp_path, "yolo", on_error="skip")
    else:
        assert len(read(tmp_path, "yolo", on_error="skip").problems) == 999


def test_the_empty_parent_of_many_categories_is_found(tmp_path: Path) -> None:
    """It may stand anywhere among the categories."""
    write_image(tmp_path / "a.png")
    for place in (0, 1, 4):
        names = [f"c{number}" for number in range(4)]
        names.insert(place, "all")
        parents = {name: "none" if name == "all" else "all" for name in names}
        categories = [{"id": each, "name": each, "supercategory": parent} for each, parent in parents.items()]
        images = [{"id": 1, "file_name": "a.png"}]
        write_text(tmp_path / "a.json", json.dumps({"images": images, "annotations": [], "categories": categories}))

        assert read(tmp_path, "coco", drop_empty_parents=True).classes == ("c0", "c1", "c2", "c3")
