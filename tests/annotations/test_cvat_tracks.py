"""CVAT for video: tracks become the objects of frames, boxes between two of them as CVAT draws them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.annotations import Annotations, read
from penstock.errors import AnnotationError, ArgumentError
from tests.annotations.sets import HEIGHT, WIDTH, make_cvat, write_image, write_text

OUTSIDE: Final = ' outside="1"'


def make_box(frame: int, box: tuple[float, ...], more: str = "", inner: str = "") -> str:
    """An element of a track."""
    corners = " ".join(f'{name}="{number}"' for name, number in zip(("xtl", "ytl", "xbr", "ybr"), box, strict=True))
    return f'<box frame="{frame}" keyframe="1" occluded="0" {corners}{more}>{inner}</box>\n'


def read_tracks(
    folder: Path, *tracks: str, frames: int = 6, name: str = "images/frame_{:06d}.png", **options: Any
) -> Annotations:
    """What is read of a video whose first frames have images."""
    for frame in range(frames):
        write_image(folder / name.format(frame))
    body = "\n".join(f'<track id="{10 + row}" label="dog">{each}</track>' for row, each in enumerate(tracks))
    write_text(folder / "annotations.xml", make_cvat(body))
    return read(folder, "cvat", **options)


def test_elements_are_objects_of_their_frames(tmp_path: Path) -> None:
    """Each frame with an image is a record, without objects before, between and after; outside ends a track."""
    colour = '<attribute name="colour">red</attribute>'
    first = (
        make_box(1, (1, 2, 11, 12), inner=colour) + make_box(2, (2, 2, 12, 12)) + make_box(3, (3, 2, 13, 12), OUTSIDE)
    )
    second = make_box(2, (20, 5, 30, 15), ' z_order="3"')

    found = read_tracks(tmp_path, first, second)

    assert [record["image"] for record in found] == [f"images/frame_{frame:06d}.png" for frame in range(6)]
    assert [record["frame"] for record in found] == list(range(6))
    assert [record["track_id"].tolist() for record in found] == [[], [10], [10, 11], [], [], []]
    assert found[2]["boxes"].tolist() == [[2, 2, 12, 12], [20, 5, 30, 15]]
    assert found[2]["z_order"].tolist() == [0, 3]
    assert found[1]["colour"] == ["red"]
    assert found.classes == ("dog", "cat")


def test_boxes_between_two_are_drawn_in_between(tmp_path: Path) -> None:
    """Each corner moves evenly from the element before to the one after, until one is outside."""
    elements = (
        make_box(0, (0, 0, 10, 8))
        + make_box(4, (8, 4, 26, 24), OUTSIDE)
        + make_box(6, (2, 2, 4, 4))
        + make_box(8, (4, 2, 8, 4))
    )

    found = read_tracks(tmp_path, elements, frames=10)

    boxes = [record["boxes"].tolist() for record in found]
    assert boxes[:4] == [[[0, 0, 10, 8]], [[2, 1, 14, 12]], [[4, 2, 18, 16]], [[6, 3, 22, 20]]]
    assert boxes[4:] == [[], [], [[2, 2, 4, 4]], [[3, 2, 6, 4]], [[4, 2, 8, 4]], []]


def test_boxes_turn_the_shorter_way_round(tmp_path: Path) -> None:
    """From 340 to 10 degrees is a turn of 30 degrees, through 0."""
    box = (10.0, 10.0, 20.0, 14.0)
    elements = make_box(0, box, ' rotation="340"') + make_box(2, box, ' rotation="10"')

    found = read_tracks(tmp_path, elements, frames=3)

    assert [record["rotation"].tolist() for record in found] == [[340.0], [355.0], [10.0]]


def test_other_shapes_between_two_are_listed(tmp_path: Path) -> None:
    """How CVAT moves the corners of polygons is not known from the file: each frame in between is one problem."""
    corners = '<polygon frame="{}" outside="0" points="1,1;9,1;9,9"/>'

    found = read_tracks(tmp_path, corners.format(0) + corners.format(3), frames=5, on_error="skip")

    assert [len(record["boxes"]) for record in found] == [1, 0, 0, 1, 0]
    assert found[0]["instances"][0] is not None
    assert [problem.image for problem in found.problems] == ["images/frame_000001.png", "images/frame_000002.png"]
    assert all("only boxes are interpolated" in problem.reason for problem in found.problems)


def test_skeletons_are_outside_with_all_their_points(tmp_path: Path) -> None:
    """A skeleton has no mark of its own in a track."""
    point = '<points label="{}" outside="{}" points="{}"/>'
    skeleton = '<skeleton frame="{}">{}</skeleton>'
    seen = point.format("a", 0, "2,3") + point.format("b", 0, "9,8")
    gone = point.format("a", 1, "2,3") + point.format("b", 1, "9,8")

    found = read_tracks(tmp_path, skeleton.format(0, seen) + skeleton.format(1, gone), frames=2)

    assert [len(record["boxes"]) for record in found] == [1, 0]
    assert found[0]["keypoints"].tolist() == [[[2, 3, 2], [9, 8, 2]]]


def test_frames_without_an_image_are_listed(tmp_path: Path) -> None:
    """An element whose frame has no image is one problem a frame; frames in between without an image are none."""
    elements = make_box(0, (0, 0, 10, 8)) + make_box(7, (0, 0, 10, 8)) + make_box(9, (0, 0, 10, 8))

    found = read_tracks(tmp_path, elements, frames=5, on_error="skip")

    assert [str(problem) for problem in found.problems] == [
        "annotations.xml: there is no image of frame 7 (image left out)",
        "annotations.xml: there is no image of frame 9 (image left out)",
    ]
    assert [len(record["boxes"]) for record in found] == [1, 1, 1, 1, 1]


def test_tracks_without_images_are_refused(tmp_path: Path) -> None:
    """The error counts tracks and frames, and says which options name the images."""
    elements = make_box(0, (0, 0, 10, 8)) + make_box(7, (0, 0, 10, 8))

    with pytest.raises(
        AnnotationError, match=r"it has 2 tracks in 2 frames, .*'frame_000000'; give frames=, .*images="
    ):
        read_tracks(tmp_path, elements, elements, frames=3, name="pictures/{:03d}.png", on_error="skip")


def test_images_have_the_names_that_are_given(tmp_path: Path) -> None:
    """ffmpeg counts from 1; other names with numbers in them are no frames."""
    write_image(tmp_path / "cam2/9.png")
    elements = make_box(0, (0, 0, 10, 8)) + make_box(5, (5, 0, 15, 8))

    for frame in range(1, 7):
        write_image(tmp_path / f"cam2/out{frame:03d}_x.png")
    write_text(tmp_path / "annotations.xml", make_cvat(f'<track id="0" label="dog">{elements}</track>'))
    found = read(tmp_path, "cvat", frames="out{:03d}_x", first_frame=1)

    assert [record["image"] for record in found] == [f"cam2/out{frame:03d}_x.png" for frame in range(1, 7)]
    assert [record["boxes"][0, 0] for record in found] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("options", [{"frames": "frame"}, {"frames": "{:q}"}, {"frames": "{}{}"}, {"first_frame": -1}])
def test_names_without_a_number_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """A name that has no place for one number, and a negative number."""
    with pytest.raises(ArgumentError, match=r"frames must be a name|first_frame must be"):
        read(tmp_path, "cvat", **options)


def test_frames_of_another_size_are_left_out(tmp_path: Path) -> None:
    """The file says the size of the video."""
    write_image(tmp_path / "images/frame_000000.png")
    write_image(tmp_path / "images/frame_000001.png", (WIDTH + 1, HEIGHT))
    size = f"<original_size><width>{WIDTH}</width><height>{HEIGHT}</height></original_size>"
    track = f'<track id="0" label="dog">{make_box(0, (0, 0, 10, 8))}{make_box(1, (0, 0, 10, 8))}</track>'
    text = make_cvat(track).replace("</task></meta>", f"{size}</task></meta>")
    write_text(tmp_path / "annotations.xml", text)

    found = read(tmp_path, "cvat", on_error="skip")

    assert [record["frame"] for record in found] == [0]
    assert f"of {WIDTH} x {HEIGHT}, the image has {WIDTH + 1} x {HEIGHT}" in found.problems[0].reason


def test_tracks_of_several_tasks_are_refused(tmp_path: Path) -> None:
    """Frames of two videos have the same numbers."""
    write_image(tmp_path / "images/frame_000000.png")
    text = make_cvat(f'<track id="0" label="dog">{make_box(0, (0, 0, 10, 8))}</track>')
    tasks = "<project><tasks><task><id>1</id></task><task><id>2</id></task></tasks></project>"
    write_text(tmp_path / "annotations.xml", text.replace("</meta>", f"{tasks}</meta>"))

    with pytest.raises(AnnotationError, match="1 tracks of several tasks"):
        read(tmp_path, "cvat", on_error="skip")


@pytest.mark.parametrize(
    ("element", "reason"),
    [
        ('<box outside="0"/>', "frame must be a number"),
        ('<box frame="x"/>', "frame must be a number"),
        ('<box frame="-1"/>', "frame must be a number of at least 0"),
        ('<box frame="1.5"/>', "frame must be a whole number"),
        (make_box(0, (0, 0, 10, 8)), "has the frame 0 twice"),
        (make_box(1, (0, 0, float("nan"), 8)), "must be a finite number"),
        ('<box frame="3"/>', "xtl must be a number"),
    ],
)
def test_damaged_elements_are_listed(tmp_path: Path, element: str, reason: str) -> None:
    """Each is left out, or cannot be interpolated to; others of its track stay."""
    found = read_tracks(tmp_path, make_box(0, (0, 0, 10, 8)) + element, on_error="skip")

    assert len(found[0]["boxes"]) == 1
    assert any(reason in problem.reason for problem in found.problems)


@settings(max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_track_gives_what_its_rule_says(tmp_path: Path, data: st.DataObject) -> None:
    """Against the rule, frame by frame: the element, or the weighted mean of its neighbours, or nothing."""
    frames = sorted(data.draw(st.sets(st.integers(0, 7), min_size=1)))
    numbers = st.integers(0, 15)
    given_boxes = {
        frame: (x, y, x + 1 + data.draw(numbers), y + 1 + data.draw(numbers))
        for frame, x, y in [(frame, data.draw(numbers), data.draw(numbers)) for frame in frames]
    }
    hidden = {frame for frame in frames if data.draw(st.booleans())}
    order = data.draw(st.permutations(frames))

    elements = "".join(make_box(frame, given_boxes[frame], OUTSIDE if frame in hidden else "") for frame in order)
    found = read_tracks(tmp_path, elements, frames=8)

    for frame, record in enumerate(found):
        before = max((each for each in frames if each <= frame), default=None)
        after = min((each for each in frames if each >= frame), default=None)
        if before is None or after is None or before in hidden:
            assert record["boxes"].shape == (0, 4)
        else:
            share = 0 if before == after else (frame - before) / (after - before)
            expected = np.array(given_boxes[before]) * (1 - share) + np.array(given_boxes[after]) * share
            np.testing.assert_allclose(record["boxes"], [expected], rtol=1e-6)
