"""Columns of coordinates of points become one field of keypoints."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # ships no types
import pytest

import penstock as ps
from penstock import transforms as T
from tests.pack.images import picture
from tests.pack.sources.test_iterables import kinds

NUMBERED = [f"{axis}{number}" for number in range(1, 12) for axis in "xy"]
EYES = ["left_eye_x", "left_eye_y", "right_eye_x", "right_eye_y", "nose_x", "nose_y"]


def pack(folder: Path, names: list[str], rows: list[list[Any]], form: str = "csv", **options: Any) -> ps.PackReport:
    """Pack a table of images with these columns."""
    for number in range(len(rows)):
        (folder / f"{number}.png").write_bytes(picture(number, "PNG"))
    whole = [dict(zip(["file", *names], [f"{at}.png", *row], strict=True)) for at, row in enumerate(rows)]
    if form == "frame":
        return ps.pack(pd.DataFrame(whole), folder / "p.lmdb", root=folder, **options)
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(whole[0]))
        writer.writeheader()
        writer.writerows(whole)
    return ps.pack(folder / "t.csv", folder / "p.lmdb", **options)


def read(folder: Path) -> list[np.ndarray[Any, Any]]:
    """The points of all records."""
    with ps.open(folder / "p.lmdb") as store:
        assert kinds(store)["keypoints"] == "keypoints"
        return [record.fields["keypoints"] for record in store]


@pytest.mark.parametrize(
    ("columns", "order"),
    [
        (NUMBERED, range(22)),
        (NUMBERED[20:] + NUMBERED[:20], [*range(2, 22), 0, 1]),
        (NUMBERED[::2] + NUMBERED[1::2], [at for pair in zip(range(11), range(11, 22), strict=True) for at in pair]),
        ([f"landmark_{n}_{axis}" for n in range(2) for axis in "xy"], range(4)),
        ([f"X_{n}" if axis == "x" else f"Y_{n}" for n in range(3) for axis in "xy"], range(6)),
        ([f"kp{n}.{axis}" for n in range(3) for axis in "xy"], range(6)),
        ([f"face_{axis}_{n}" for n in range(3) for axis in "xy"], range(6)),
        (EYES, range(6)),
    ],
)
@pytest.mark.parametrize("form", ["csv", "frame"])
def test_points_are_one_field_in_their_order(columns: list[str], order: Any, form: str, tmp_path: Path) -> None:
    """By number, also where 10 stands before 2; else as the columns stand."""
    rows = [[10 * row + at / 4 for at in range(len(columns))] for row in range(3)]

    report = pack(tmp_path, columns, rows, form)

    assert report.schema is not None
    assert set(report.schema.fields) == {"image", "keypoints", "width", "height"}
    for found, row in zip(read(tmp_path), rows, strict=True):
        assert found.tolist() == [[row[x], row[y]] for x, y in zip(order[::2], order[1::2], strict=True)]


@pytest.mark.parametrize(
    "columns", [["x1", "y1", "x2", "y2"], ["center_x", "center_y"], ["x1", "x2", "x3", "y"], ["max", "index", "yaw"]]
)
def test_other_numbers_stay_fields_of_their_own(columns: list[str], tmp_path: Path) -> None:
    """Corners of a box, a single point, coordinates without the other one."""
    report = pack(tmp_path, columns, [[1.5] * len(columns)])

    assert report.schema is not None
    assert set(columns) <= set(report.schema.fields)


def test_gaps_are_nan_and_have_the_flag_of_unknown_points(tmp_path: Path) -> None:
    """With columns of flags points have three numbers; a point without one coordinate has none."""
    columns = [f"{axis}{number}" for number in range(3) for axis in ("x", "y", "v")]
    rows: list[list[Any]] = [[1, 2, 2, 3, 4, 1, 5, 6, 0], [1, 2, 2, "", 4, 1, "NaN", "NaN", ""], [""] * 9]

    pack(tmp_path, columns, rows)

    nan = np.nan
    wanted = [
        [[1, 2, 2], [3, 4, 1], [5, 6, 0]],
        [[1, 2, 2], [nan, nan, 0], [nan, nan, 0]],
        [[nan, nan, 0], [nan, nan, 0], [nan, nan, 0]],
    ]
    for found, expected in zip(read(tmp_path), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_text_among_coordinates_is_a_problem_of_its_row(tmp_path: Path) -> None:
    """The others are packed."""
    report = pack(tmp_path, EYES, [[1] * 6, [1, 2, "left", 4, 5, 6]], on_error="skip")

    assert report.records == 1
    assert report.skipped[0].reason.startswith("line 3: column 'right_eye_x' is a coordinate of a point")


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"schema": {"keypoints": None}}, {}),
        ({"schema": {"keypoints": "float32[3,2]"}}, {"keypoints": "float32[3,2]"}),
        ({"schema": {"nose_x": "float", "nose_y": None}}, {"nose_x": "float", "left_eye_x": "int"}),
        ({"columns": {"age": "nose_x"}}, {"age": "int", "left_eye_x": "int"}),
    ],
)
def test_the_caller_decides_what_points_become(options: Any, fields: dict[str, str], tmp_path: Path) -> None:
    """Columns that are named are no points."""
    report = pack(tmp_path, EYES, [[1, 2, 3, 4, 5, 6]], **options)

    assert report.schema is not None
    found = {name: field.kind for name, field in report.schema.fields.items()}
    assert found == {**found, **fields}
    assert ("keypoints" in found) == ("keypoints" in fields)


@pytest.mark.parametrize(
    ("others", "name"),
    [(["keypoints"], "landmarks"), (["keypoints", "landmarks", "column_points"], "nose_x")],
)
def test_a_column_that_has_the_name_of_the_points_keeps_it(others: list[str], name: str, tmp_path: Path) -> None:
    """The points have the next name, or are no field."""
    report = pack(tmp_path, [*others, *EYES], [[7] * (len(others) + 6)])

    assert report.schema is not None
    assert {**dict.fromkeys(others, "int"), name: report.schema[name].kind}.items() <= {
        each: field.kind for each, field in report.schema.fields.items()
    }.items()
    assert (report.schema[name].kind == "keypoints") == (name == "landmarks")


def test_fractions_of_an_image_are_said(tmp_path: Path) -> None:
    """Keypoints are pixels; nothing is said of pixels, of corners at 0 and 1, and of rows that cannot be read."""
    with pytest.warns(UserWarning, match="such as 'left_eye_x', have numbers from 0 to 1, and keypoints are pixels"):
        pack(tmp_path, EYES, [[0.5, 0, 1, 0.25, "", ""]])

    for row in ([0, 0, 1, 1, 0, 1], [0.5, 1.5, 2, 3, 4, 5], [0.5, 0.5, "x", 0.5, 0.5, 0.5]):
        pack(tmp_path, EYES, [row, [1] * 6], on_error="skip", overwrite=True)


def test_points_are_mirrored_with_their_pairs(tmp_path: Path) -> None:
    """As those of annotations; batches are one array."""
    pack(tmp_path, EYES, [[1, 2, 3, 4, 5, 6]] * 2)
    flip = T.HorizontalFlip(p=1.0, keypoint_pairs=[(0, 1)], num_keypoints=3)
    prepare = [T.Decode(), T.Resize((20, 10)), flip, T.ToLayout("CHW", "uint8")]
    dataset = ps.StoreDataset(tmp_path / "p.lmdb", ("image", "keypoints"), prepare)

    _, points = next(iter(ps.DataLoader(dataset, batch_size=2)))

    with ps.open(tmp_path / "p.lmdb") as store:
        sizes = [(record.fields["width"], record.fields["height"]) for record in store]
    expected = [[[10 - x * 10 / w, y * 20 / h] for x, y in ((3, 4), (1, 2), (5, 6))] for w, h in sizes]
    np.testing.assert_allclose(points, expected, rtol=1e-5)
