"""The table of what annotations have, and of what is wrong in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.annotations import Annotations, read
from penstock.annotations.summary import AnnotationSummary
from penstock.errors import AnnotationError
from tests.pack.voc import write_voc


def test_objects_and_images_are_counted_by_class(tmp_path: Path) -> None:
    """A class that occurs twice in an image counts as two objects and one image; classes without objects as none."""
    folder = write_voc(tmp_path / "v", [[("cat", 0, 0, 5, 5), ("cat", 1, 1, 6, 6)], [], [("dog", 2, 2, 9, 9)]])

    summary = AnnotationSummary.of(read(folder, "voc", classes=["bird", "dog", "cat"]))

    assert (summary.images, summary.empty, summary.objects, summary.ok) == (3, 1, 3, True)
    assert summary.classes == {"bird": (0, 0), "dog": (1, 1), "cat": (2, 1)}
    assert [line.split() for line in summary.lines()][-4:] == [
        ["bird", "0", "0"], ["dog", "1", "1"], ["cat", "2", "1"], ["nothing", "wrong"],
    ]  # fmt: skip


def test_problems_are_counted_by_reason_and_by_file(tmp_path: Path) -> None:
    """Reasons that differ in numbers and names alone are one; every problem is in the JSON."""
    folder = write_voc(tmp_path / "v", [[("cat", 5, 0, 2, 5), ("cat", 9, 1, 8.5, 6)], [("cat", 4, 2, 4, 9)], [], []])
    for number in (2, 3):
        (folder / "JPEGImages" / f"{number}.jpg").unlink()

    summary = AnnotationSummary.of(read(folder, "voc", on_error="skip"))

    assert list(summary.reasons.values()) == [2, 2, 1]
    assert any(reason.startswith("there is no image ...") for reason in summary.reasons)
    assert summary.files == {f"Annotations/{n}.xml": count for n, count in ((0, 2), (1, 1), (2, 1), (3, 1))}
    entry = summary.to_json()
    assert entry["ok"] is False
    assert isinstance(entry["problems"], list)
    assert [each["file"] for each in entry["problems"]] == [problem.file for problem in summary.problems]
    assert any("5 problems in 4 files" in line for line in summary.lines())


def test_a_source_of_another_format_is_an_error(tmp_path: Path) -> None:
    """Nothing found is not "nothing wrong", whatever is done with problems."""
    write_voc(tmp_path / "v", [])

    for on_error in ("raise", "skip"):
        with pytest.raises(AnnotationError, match="no annotations of the format 'voc'"):
            read(tmp_path / "v", "voc", on_error=on_error)


def test_no_images_are_no_error(tmp_path: Path) -> None:
    """The table of an empty source has zeros."""
    summary = AnnotationSummary.of(Annotations("voc", tmp_path, [], ()))

    assert (summary.images, summary.objects, summary.classes, summary.fields) == (0, 0, {}, ())
