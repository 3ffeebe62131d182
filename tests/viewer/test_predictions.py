"""Predictions beside annotations: files of several forms, matches as pycocotools makes them, sets of records."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import penstock as ps
from penstock.errors import ArgumentError
from penstock.viewer.compare import matching
from penstock.viewer.compare.matching import (
    count_cells,
    find_overlaps,
    judge_boxes,
    list_classes,
    make_boxes,
    match_boxes,
)
from penstock.viewer.compare.predictions import read_predictions
from tests.pack.images import make_photos, picture

CLASSES = ["cat", "dog", "owl"]


@pytest.fixture
def detected(tmp_path: Path) -> Path:
    """A pack of three pictures of 40 x 40 pixels with objects: a cat and a dog; an owl; none."""
    rows = [([[0, 0, 10, 10], [20, 20, 30, 30]], [0, 1]), ([[5, 5, 15, 15]], [2]), ([], [])]
    samples = [
        {
            "image": picture(number),
            "boxes": np.array(boxes, np.float32).reshape(-1, 4),
            "labels": np.array(labels, np.int64),
            "__key__": f"train/00{number + 7}.jpg",
        }
        for number, (boxes, labels) in enumerate(rows)
    ]
    field = ps.Field("int64[*]", tuple(CLASSES))
    ps.pack(samples, tmp_path / "det.lmdb", schema={"boxes": "boxes", "labels": field}, index="none")
    return tmp_path / "det.lmdb"


def result(image: int | str, category: int | str, box: list[float], score: float) -> dict[str, Any]:
    """One of COCO's results."""
    return {"image_id": image, "category_id": category, "bbox": box, "score": score}


RESULTS = [
    result(7, 1, [0, 0, 10, 10], 0.9),  # the cat
    result(7, 1, [1, 0, 10, 10], 0.8),  # the cat again
    result(7, 3, [20, 20, 10, 10], 0.7),  # the dog, as an owl
    result(9, 2, [0, 0, 5, 5], 0.95),  # nothing
    result(8, 3, [5, 5, 10, 10], 0.2),  # the owl, with a low score
]


def write(path: Path, value: Any) -> Path:
    """A JSON file."""
    path.write_text(json.dumps(value))
    return path


def test_predictions_are_matched_and_counted(detected: Path, tmp_path: Path, ask: Callable[..., Any]) -> None:
    """Each is correct, of a wrong class, a duplicate, or nothing is there; an object without one is missed."""
    asker = ask(detected, predictions=write(tmp_path / "r.json", RESULTS))

    summary = asker.json("api/predictions/summary")
    found = asker.json("api/predictions/evaluate?iou=0.5&score=0.3")

    assert (summary["kind"], summary["count"], summary["records"], summary["classes"]) == ("boxes", 5, 3, CLASSES)
    assert summary["notes"] == [
        "images are found by the number in the names of their files",
        "category ids are numbers of classes, counted from 1",
    ]
    assert found["counts"] == {"correct": 1, "wrong-class": 1, "duplicates": 1, "nothing-there": 1, "missed": 1}
    assert sorted(map(tuple, found["cells"])) == [(-1, 0, 1), (-1, 1, 1), (0, 0, 1), (1, 2, 1), (2, -1, 1)]
    rows = {row["name"]: (row["objects"], row["predictions"], row["correct"]) for row in found["classes"]}
    assert rows == {"cat": (1, 2, 1), "dog": (1, 1, 0), "owl": (1, 1, 0)}
    low = asker.json("api/predictions/evaluate?iou=0.5&score=0.1")
    assert low["counts"]["missed"] == 0


def test_records_of_a_set_are_most_confident_first(detected: Path, tmp_path: Path, ask: Callable[..., Any]) -> None:
    """Each record once, with the event that puts it there."""
    asker = ask(detected, predictions=write(tmp_path / "r.json", RESULTS))

    def indices(name: str) -> list[int]:
        return [row["index"] for row in asker.json(f"api/predictions/records?set={quote(name)}")["rows"]]

    assert indices("false-positives@0.5,0.3") == [2, 0]
    assert indices("missed@0.5,0.3") == [1]
    assert indices("confused:1>2@0.5,0.3") == [0]
    assert indices("confused:0>0@0.5,0.3") == [0]
    row = asker.json(f"api/predictions/records?set={quote('wrong-class@0.5,0.3')}")["rows"][0]
    assert (row["truth"], row["predicted"], row["score"]) == ("dog", "owl", 0.7)
    status, _, body = asker.request("api/predictions/records?set=odd@0.5,0.3")
    assert (status, "set must be one of false-positives" in body.decode()) == (400, True)


def test_the_panel_counts_the_records_of_a_set(detected: Path, tmp_path: Path, ask: Callable[..., Any]) -> None:
    """Those that the grid shows, of the set and of the filter."""
    asker = ask(detected, predictions=write(tmp_path / "r.json", RESULTS))
    order = quote("set:false-positives@0.5,0.3")

    for query, expected in (("", 2), ("boxes", 1), ("boxes+%3D+1", 0)):
        found = asker.json(f"api/find/histograms?sort={order}&q={query}")
        assert found["matched"] == asker.json(f"api/rows?sort={order}&q={query}")["total"] == expected
    (boxes,) = (
        each for each in asker.json(f"api/find/histograms?sort={order}")["histograms"] if each["name"] == "boxes"
    )
    assert [(bar["label"], bar["matched"], bar["count"]) for bar in boxes["bars"]] == [
        ("0", 1, 1), ("1", 0, 1), ("2", 1, 1)
    ]  # fmt: skip
    status, _, body = asker.request(f"api/find/histograms?sort={quote('set:odd@1,1')}")
    assert (status, b"set must be one of" in body) == (400, True)


def test_predictions_are_layers_beside_the_annotations(detected: Path, tmp_path: Path, ask: Callable[..., Any]) -> None:
    """Those of at least the score that was asked for last, with classes and scores, masks and keypoints."""
    mask = {"size": [20, 30], "counts": [0, 40, 560]}
    extra = {**result(9, 2, [0, 0, 5, 5], 0.6), "keypoints": [1, 2, 2, 3, 4, 0]}
    results = [*RESULTS, extra, {"image_id": 8, "category_id": 1, "segmentation": mask, "score": 0.9}]
    asker = ask(detected, predictions=write(tmp_path / "r.json", results))
    (source,) = asker.viewer.session.layer_sources

    (boxes,) = source.layers(0)
    assert (boxes["source"], boxes["kind"]) == ("predictions", "boxes")
    assert [(each["box"], each["name"], each["score"]) for each in boxes["items"]] == [
        ([0, 0, 10, 10], "cat", 0.9), ([1, 0, 11, 10], "cat", 0.8), ([20, 20, 30, 30], "owl", 0.7)
    ]  # fmt: skip
    asker.json("api/predictions/evaluate?iou=0.5&score=0.85")
    assert len(source.layers(0)[0]["items"]) == 1
    asker.json("api/predictions/evaluate?iou=0.5&score=0.5")
    assert [layer["kind"] for layer in source.layers(2)] == ["boxes", "points"]


def test_what_is_wrong_is_said_of_each_object(detected: Path, tmp_path: Path, ask: Callable[..., Any]) -> None:
    """Of predicted boxes by the last thresholds, also those of a set; objects that were missed are a layer."""
    asker = ask(detected, predictions=write(tmp_path / "r.json", RESULTS))

    def find_wrong(index: int) -> dict[str, list[tuple[str, str]]]:
        layers = asker.json(f"api/layers?indices={index}")[str(index)]["layers"]
        return {
            layer["id"]: [(each["name"], each["wrong"]) for each in layer["items"]]
            for layer in layers if layer["source"] == "predictions"
        }  # fmt: skip

    asker.json("api/predictions/evaluate?iou=0.5&score=0.3")
    assert find_wrong(0) == {"predicted-boxes": [("cat", ""), ("cat", "again"), ("owl", "is dog")]}
    assert find_wrong(1) == {"missed": [("owl", "not found")]}
    assert find_wrong(2) == {"predicted-boxes": [("dog", "not there")]}
    asker.json(f"api/rows?sort={quote('set:correct@0.5,0.1')}")
    assert find_wrong(1) == {"predicted-boxes": [("owl", "")]}
    row = asker.json(f"api/predictions/records?set={quote('wrong-class@0.5,0.85')}")
    assert row["total"] == 0
    assert find_wrong(0) == {"predicted-boxes": [("cat", "")], "missed": [("dog", "not found")]}
    assert asker.json("api/record/0")["fields"][0]["name"] != "predicted"


def test_the_class_that_is_predicted_is_a_field(tmp_path: Path, ask: Callable[..., Any]) -> None:
    """With its score, and the class of the record if that is another one; nothing without a prediction."""
    (tmp_path / "p.csv").write_text("key,label,score\ncats/0.jpg,cats,0.9\ndogs/1.jpg,cats,0.8\ncats/2.jpg,dogs,0.1\n")
    asker = ask(make_photos(tmp_path / "photos", 4), predictions=tmp_path / "p.csv")
    fields = [{each["name"]: each for each in asker.json(f"api/record/{index}")["fields"]} for index in range(4)]

    said = [each["predicted"]["text"] for each in fields if "predicted" in each]
    assert sorted(said) == ["0.10 dogs", "0.80 cats, is dogs", "0.90 cats"]
    assert [each["predicted"]["is_bad"] for each in fields if "predicted" in each].count(True) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.csv", "key,label,score\ncats/0.jpg,cats,0.9\ndogs/1.jpg,cats,0.8\ncats/2.jpg,cats,0.3\n"),
        ("p.csv", "file,cats,dogs\n0.jpg,0.9,0.1\n1.jpg,0.8,0.2\n2.jpg,0.3,0.1\n"),
        ("p.jsonl", "".join(
            f'{{"index": {index}, "probs": {probs}}}\n'
            for index, probs in zip((0, 2, 1), ([0.9, 0.1], [0.8, 0.2], [0.3, 0.1]), strict=True)
        )),
    ],
)  # fmt: skip
def test_classes_of_pictures_in_several_forms(tmp_path: Path, ask: Callable[..., Any], name: str, text: str) -> None:
    """Of four pictures, one is right, one wrong, one below the score, and one has no prediction."""
    photos = make_photos(tmp_path / "photos", 4)
    (tmp_path / name).write_text(text)
    asker = ask(photos, predictions=tmp_path / name)

    assert asker.json("api/predictions/summary")["kind"] == "labels"
    found = asker.json("api/predictions/evaluate?score=0.5")

    assert found["counts"] == {"correct": 1, "wrong-class": 1, "duplicates": 0, "nothing-there": 0, "missed": 2}
    assert sorted(map(tuple, found["cells"])) == [(0, -1, 1), (0, 0, 1), (1, -1, 1), (1, 0, 1)]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("p.txt", "", "predictions must be a file named .csv"),
        ("absent.csv", None, "cannot be read: there is no table absent.csv"),
        ("absent.json", None, "cannot be read"),
        ("p.json", "{}", r"must be a JSON array of objects, one for each record .*; expected COCO's results"),
        ("p.json", "[]", "must have at least one prediction; expected COCO's results"),
        ("p.json", "[" * 100_000, "cannot be read"),
        ("p.json", "[1]", "cannot be read: row 0 of p.json must be a JSON object"),
        ("p.json", '[{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3], "score": 1}]', "bbox must have four numbers"),
        ("p.json", '[{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, NaN]}]', "bbox must be a number"),
        ("p.json", '[{"image_id": 1, "category_id": 1, "score": 1e999}]', "score must be a number"),
        ("p.json", '[{"image_id": 1, "category_id": 1, "segmentation": {"size": [1, 1], "counts": "~"}}]', "counts"),
        ("p.json", '[{"image_id": [], "category_id": 1}]', "image_id must be a whole number or a text, got []"),
        ("p.csv", "a,b\n1,2\n", "it has none of the columns image_id, image"),
        ("p.csv", "key,b\n1,2\n", "row 2|line 2 of p.csv is no prediction: it has no class, got the columns key, b"),
        ("p.csv", "key,label,score\ncats/0.jpg,a,high\n", "its score must be a number of at most 2"),
        ("p.csv", "key,label\nnone.png,cats\n", "no image of the predictions is a record of the store"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, text: str | None, sentence: str) -> None:
    """One sentence, before a server is started."""
    photos = make_photos(tmp_path / "photos", 2)
    if text is not None:
        (tmp_path / name).write_text(text)

    with pytest.raises(ArgumentError, match=sentence.replace("[]", r"\[\]")):
        ps.view(photos, predictions=tmp_path / name)


def random_boxes(rng: np.random.Generator, records: int, *, classes: int, least: int) -> tuple[Any, Any, Any]:
    """Counts, boxes on a coarse grid, so that many overlap alike, and classes."""
    counts = rng.integers(least, 8, records)
    total = int(counts.sum())
    corners = rng.integers(0, 12, (total, 2)) * 4.0
    sizes = rng.integers(2, 8, (total, 2)) * 4.0
    return counts, np.hstack([corners, corners + sizes]), rng.integers(0, classes, total)


@pytest.mark.parametrize("seed", range(4))
def test_matches_are_those_of_pycocotools(seed: int) -> None:
    """For random boxes with equal overlaps and crowds, at several IoUs."""
    coco = pytest.importorskip("pycocotools.coco")
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    rng = np.random.default_rng(seed)
    counts, boxes, labels = random_boxes(rng, 40, classes=3, least=0)
    crowds = rng.random(len(boxes)) < 0.1
    objects = make_boxes(counts, boxes, labels, crowds=crowds)
    counts, boxes, labels = random_boxes(rng, 40, classes=3, least=1)
    scores = np.concatenate([np.sort(rng.random(count))[::-1] for count in counts])
    predicted = make_boxes(counts, boxes, labels, scores=scores)

    def to_coco(held: Any, *, is_result: bool) -> list[dict[str, Any]]:
        rows = []
        for number, (record, box) in enumerate(zip(held.records.tolist(), held.boxes.tolist(), strict=True)):
            x0, y0, x1, y1 = box
            row = {"id": number + 1, "image_id": record, "category_id": int(held.classes[number])}
            row |= {"bbox": [x0, y0, x1 - x0, y1 - y0], "area": (x1 - x0) * (y1 - y0)}
            row |= {"score": float(held.scores[number])} if is_result else {"iscrowd": int(held.crowds[number])}
            rows.append(row)
        return rows

    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco.COCO()
        truth.dataset = {
            "images": [{"id": number} for number in range(40)], "annotations": to_coco(objects, is_result=False),
            "categories": [{"id": number} for number in range(3)],
        }  # fmt: skip
        truth.createIndex()
        results = truth.loadRes(to_coco(predicted, is_result=True))
        judge = cocoeval.COCOeval(truth, results, "bbox")
        judge.evaluate()
    overlaps = find_overlaps(predicted, objects)
    for place in (0, 5, 9):
        matched = match_boxes(predicted, objects, overlaps, float(judge.params.iouThrs[place]))
        expected = np.full(len(matched), -1)
        for image in judge.evalImgs:
            if image is None or image["aRng"] != judge.params.areaRng[0]:
                continue
            for number, object_, ignored in zip(
                image["dtIds"], image["dtMatches"][place], image["dtIgnore"][place], strict=True
            ):
                expected[number - 1] = -2 if ignored else int(object_) - 1
        assert matched.tolist() == expected.tolist()


def test_a_threshold_gives_what_the_remaining_predictions_give() -> None:
    """Judging with a score equals judging only the predictions of that score, whatever was matched below it."""
    rng = np.random.default_rng(9)
    objects = make_boxes(*random_boxes(rng, 30, classes=2, least=0))
    counts, boxes, labels = random_boxes(rng, 30, classes=2, least=0)
    scores = np.concatenate([np.sort(rng.random(count))[::-1] for count in counts])
    predicted = make_boxes(counts, boxes, labels, scores=scores)
    keep = scores >= 0.5
    fewer = make_boxes(
        np.bincount(predicted.records[keep], minlength=30), boxes[keep], labels[keep], scores=scores[keep]
    )

    def judge(held: Any, score: float) -> list[tuple[Any, ...]]:
        overlaps = find_overlaps(held, objects)
        found = judge_boxes(held, objects, overlaps, match_boxes(held, objects, overlaps, 0.5), iou=0.5, score=score)
        parts = (found.records, found.kinds, found.truths, found.predicted, found.scores)
        return sorted(zip(*(part.tolist() for part in parts), strict=True))

    assert judge(predicted, 0.5) == judge(fewer, 0.0)
    found = judge_boxes(
        predicted, objects, find_overlaps(predicted, objects),
        match_boxes(predicted, objects, find_overlaps(predicted, objects), 0.5), iou=0.5, score=0.0,
    )  # fmt: skip
    rows = list_classes(found, ("a", "b"))
    assert sum(int(str(row["objects"])) for row in rows) == len(objects.classes)
    assert sum(int(str(row["predictions"])) for row in rows) == len(predicted.classes)
    assert sum(count for _, _, count in count_cells(found)) == len(found.records)
    assert set(found.kinds.tolist()) <= {
        matching.CORRECT, matching.WRONG_CLASS, matching.DUPLICATE, matching.SPURIOUS, matching.MISSED
    }  # fmt: skip


def test_a_set_is_an_order_of_the_grid(detected: Path, tmp_path: Path, ask: Callable[..., Any]) -> None:
    """Its records only, the most confident first; and picked as a whole."""
    asker = ask(detected, predictions=write(tmp_path / "r.json", RESULTS))

    rows = asker.json(f"api/rows?sort={quote('set:false-positives@0.5,0.3')}")
    assert (rows["total"], [row["index"] for row in rows["rows"]]) == (2, [2, 0])
    assert asker.json(f"api/find/check?sort={quote('set:missed@0.5,0.3')}")["ok"]
    assert asker.request(f"api/picks/matching?sort={quote('set:missed@0.5,0.3')}")[2] == b"\x02"
    status, _, body = asker.request("api/rows?sort=set:odd")
    assert (status, "there is no set 'odd' in this viewer" in body.decode()) == (400, True)


def test_a_prediction_is_told_from_the_truth(tmp_path: Path) -> None:
    """Beside a column of predictions, ``label`` is the truth; ``target`` and ``y`` are no predictions at all."""
    path = tmp_path / "p.csv"
    path.write_text("key,label,target,prediction,score\na,cat,cat,dog,0.9\n")

    rows, column = read_predictions(path)

    assert (column, rows[0].label, rows[0].score) == ("key", "dog", 0.9)
