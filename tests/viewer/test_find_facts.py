"""What the scan finds out of pictures with known faults; near-duplicates; counts; the requests of the panel."""

from __future__ import annotations

import io
import itertools
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFilter

import penstock as ps
from penstock.sample import Array, Field, Record, Schema
from penstock.stores.base import Indices, Store
from penstock.testing import write_photos
from penstock.viewer.browse.annotations_beside import read_beside
from penstock.viewer.browse.collection import Collection
from penstock.viewer.find import scanning
from penstock.viewer.find.columns import FilterNumbers, Mask
from penstock.viewer.find.finder import MEASURED, Finder
from penstock.viewer.find.histograms import BarChart, count_numbers, make_histograms
from penstock.viewer.find.language import QueryToken
from penstock.viewer.find.order import list_order
from penstock.viewer.find.problems import PROBLEMS, find_duplicates
from penstock.viewer.find.scanning import measure
from penstock.viewer.find.values import describe_values
from tests.conformance.store_makers import MAKERS
from tests.pack.images import make_photos

BOX: Final[list[list[float]]] = [[2, 2, 20, 20]]
Row = tuple[bytes, list[list[float]]]
"""A picture, and its boxes."""


def scene(seed: int, width: int = 96, height: int = 64) -> Image.Image:
    """A picture of smooth colours, another one for each seed."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def save(image: Image.Image, form: str = "JPEG", **options: Any) -> bytes:
    """A picture as a file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def turned() -> Image.Exif:
    """Exif data that turn a picture by 90 degrees."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def make_cases() -> dict[str, Row]:
    """By key: a picture, and its boxes. The key begins with its only problem, or with "fine"."""
    whole = save(scene(0))
    return {
        "fine": (whole, BOX),
        "fine-png": (save(scene(1), "PNG"), BOX),
        "fine-gray": (save(scene(2).convert("L"), "PNG"), BOX),
        "fine-gif": (save(scene(3), "GIF"), BOX),
        "unreadable": (b"\xff\xd8\xff\xe0 no picture", BOX),
        "unreadable-png": (save(scene(4), "PNG")[:200], BOX),
        "unreadable-text": (b"<html>not found</html>", BOX),
        "unreadable-kind": (b"8BPS" + bytes(60), BOX),
        "repaired": (whole[: len(whole) * 2 // 3], BOX),
        "exif-turned": (save(scene(5), exif=turned()), BOX),
        "exif-turned-tall-box": (save(scene(6), exif=turned()), [[0, 0, 64, 96]]),
        "tiny": (save(scene(7, 31, 33)), BOX),
        "extreme-aspect": (save(scene(8, 165, 40)), BOX),
        "empty-annotation": (save(scene(9)), []),
        "box-outside": (save(scene(10)), [[2, 2, 99, 20]]),
        "box-outside-before": (save(scene(11)), [*BOX, [-3, 0, 5, 5]]),
        "fine-box-at-edge": (save(scene(12)), [[0, 0, 96.5, 64.5]]),
        "box-degenerate": (save(scene(13)), [[5, 5, 5, 9], *BOX]),
    }


class Rows(Store):
    """Records that are in memory, with pictures that no pack takes.

    Parameters
    ----------
    records : mapping of str to (bytes, list)
        By key: a picture, and its boxes.
    """

    kind = "rows"

    def __init__(self, records: Mapping[str, Row]) -> None:
        super().__init__("/rows")
        self._records = [
            Record(index, key, {"image": content, "boxes": np.array(boxes, np.float32).reshape(-1, 4)})
            for index, (key, (content, boxes)) in enumerate(records.items())
        ]

    @property
    def schema(self) -> Schema:
        """Pictures and boxes."""
        return Schema({"image": Field("image"), "boxes": Field("boxes")})

    def __len__(self) -> int:
        return len(self._records)

    def read(self, indices: Indices) -> list[Record]:
        """Some records."""
        return [self._records[int(index)] for index in indices]

    def column(self, field: str) -> Array:
        """There are none."""
        raise NotImplementedError(field)

    def keys(self) -> list[str]:
        """All keys."""
        return [record.key for record in self._records]

    def digest(self) -> str:
        """The same always."""
        return "rows"


@pytest.fixture(scope="module")
def cases() -> Finder:
    """These pictures, scanned."""
    return scanned(Rows(make_cases()))


def scanned(store: Store) -> Finder:
    """A finder of which everything was measured."""
    finder = Finder(Collection(store))
    finder.scan.start()
    finder.scan.wait()
    return finder


def keys_of(finder: Finder, query: str, sort: str = "") -> list[str]:
    """Keys of the records that fit."""
    indices = list_order(finder, query, sort)
    assert indices is not None
    return [[*make_cases()][index] for index in indices.tolist()]


@pytest.mark.parametrize("name", [*PROBLEMS, "fine"])
def test_each_problem_is_found_where_it_is(cases: Finder, name: str) -> None:
    """A picture has the problem that its key begins with, and no other."""
    found = keys_of(cases, "not problem" if name == "fine" else f"problem = {name}")

    assert found == [key for key in make_cases() if key.startswith(name)]


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("format in (GIF, PNG) and not problem", ["fine-png", "fine-gray", "fine-gif"]),
        ("width = 165 and height = 40 and pixels = 6600 and aspect > 4.1", ["extreme-aspect"]),
        ("problem = exif-turned and width = 96", ["exif-turned", "exif-turned-tall-box"]),
        ("problem = exif-turned and area > 6000", ["exif-turned-tall-box"]),
        ("not boxes", ["empty-annotation"]),
        ("boxes > 1", ["box-outside-before", "box-degenerate"]),
        ("area > 6000 and not problem = exif-turned", ["fine-box-at-edge"]),
        ("area = 0", ["box-degenerate"]),
        ("width is missing", ["unreadable", "unreadable-text", "unreadable-kind"]),
        ("format = unsupported", ["unreadable-kind"]),
        ("brightness is missing", ["unreadable", "unreadable-png", "unreadable-text", "unreadable-kind"]),
        ("unread and nbytes < 200", ["unreadable", "unreadable-text", "unreadable-kind"]),
        (".format = PNG and key ~ fine-p*", ["fine-png"]),
        ("class = 3 or score > 0", []),
    ],
)
def test_measured_names_have_the_values_of_the_files(cases: Finder, query: str, keys: list[str]) -> None:
    """Sizes, formats and counts are those with which the pictures were made."""
    assert keys_of(cases, query) == keys


def test_look_follows_the_pixels() -> None:
    """Brightness and contrast are those of the gray values; a blurred picture is less sharp, and has the same hash."""
    flat = measure(save(Image.new("L", (300, 200), 77), "PNG"))
    sharp, blurred, small = (
        measure(save(image, quality=95))
        for image in (
            scene(1, 800, 600),
            scene(1, 800, 600).filter(ImageFilter.GaussianBlur(12)),
            scene(1, 400, 300),
        )
    )

    assert (flat.brightness, flat.contrast, flat.sharpness, flat.hash) == (77, 0, 0, 0)
    gray = np.asarray(scene(1, 800, 600).convert("L"), np.float64)
    assert abs(sharp.brightness - gray.mean()) < 1
    assert abs(sharp.contrast - gray.std()) < 2
    assert blurred.sharpness < sharp.sharpness
    assert (sharp.hash ^ small.hash).bit_count() <= 3


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("shape", [(1, 1), (2, 300), (700, 40), (8, 9)])
def test_stored_pixels_of_any_form_are_measured(shape: tuple[int, int], channels: int, dtype: str) -> None:
    """Any size, number of channels and dtype has a size and a look."""
    pixels = np.random.default_rng(0).integers(0, 255, (*shape, channels)).astype(dtype)

    facts = measure(pixels)

    assert (facts.height, facts.width, facts.nbytes) == (*shape, pixels.nbytes)
    assert facts.broken == 0
    assert 0 <= facts.brightness <= 255


def test_near_duplicates_are_groups() -> None:
    """Copies that are smaller or compressed more are in the group of their picture, and others in none."""
    rows: dict[str, Row] = {str(seed): (save(scene(seed), quality=95), BOX) for seed in range(20)}
    rows["copy"] = rows["3"]
    rows["worse"] = (save(scene(3), quality=40), BOX)
    rows["smaller"] = (save(scene(7, 480, 320)), BOX)
    finder = scanned(Rows(rows))

    assert finder.duplicates().tolist() == [3 if at in {3, 20, 21} else 7 if at in {7, 22} else -1 for at in range(23)]
    assert keys_by(finder, rows, "duplicate", "duplicate") == ["3", "copy", "worse", "7", "smaller"]
    assert keys_by(finder, rows, "duplicate = 7", "") == ["7", "smaller"]


def keys_by(finder: Finder, rows: Mapping[str, object], query: str, sort: str) -> list[str]:
    """Keys of the records that fit, in an order."""
    indices = list_order(finder, query, sort)
    assert indices is not None
    return [[*rows][index] for index in indices.tolist()]


HASHES: Final = st.lists(
    st.tuples(
        st.sampled_from([0, 1 << 63, 0x0123456789ABCDEF, (1 << 64) - 1]), st.sets(st.integers(0, 63), max_size=3)
    ),
    max_size=30,
)


@given(HASHES)
def test_groups_are_those_of_all_pairs(made: list[tuple[int, set[int]]]) -> None:
    """Two hashes are in one group, if a chain of pairs that differ by few bits joins them."""
    hashes = [number ^ sum(1 << bit for bit in bits) for number, bits in made]

    groups = find_duplicates(np.array(hashes, np.uint64)).tolist()

    expected = [*range(len(hashes))]
    for _ in hashes:
        for one, other in itertools.combinations(range(len(hashes)), 2):
            if (hashes[one] ^ hashes[other]).bit_count() <= 3:
                expected[one] = expected[other] = min(expected[one], expected[other])
    assert groups == [root if expected.count(root) > 1 else -1 for root in expected]


def test_an_outlier_is_first() -> None:
    """The picture that is darker than all others, and the one that is larger, are the farthest."""
    rows: dict[str, Row] = {str(seed): (save(scene(seed)), BOX) for seed in range(12)}
    rows["dark"] = (save(Image.eval(scene(1), lambda value: value // 12)), BOX)
    rows["large"] = (save(scene(2, 960, 640)), BOX)
    finder = scanned(Rows(rows))

    assert set(keys_by(finder, rows, "", "-brightness")[-1:]) == {"dark"}
    assert "dark" in keys_by(finder, rows, "outlier > 2", "-outlier")[:2]


def test_bars_mean_their_conditions(cases: Finder) -> None:
    """The records of a bar are those that its condition gives; those of a histogram are all with a value."""
    seen = set()
    fits = mask_of(cases, "format = JPEG")
    for histogram in make_histograms(cases, fits):
        for bar in histogram.bars:
            mask = mask_of(cases, bar.query)
            if histogram.counts == "records":
                assert (bar.count, bar.matched) == (mask.sum(), (mask & fits).sum()), (histogram.name, bar)
            else:
                assert 0 <= bar.matched <= bar.count
                assert mask.any() == (bar.count > 0)
        seen.add(histogram.name)
        if histogram.name == "boxes":
            assert sum(bar.count for bar in histogram.bars) == len(make_cases())
    assert {"problem", "boxes", "area", "width", "height", "nbytes", "format", "brightness"} <= seen


def mask_of(finder: Finder, query: str) -> Mask:
    """The records that fit."""
    indices = list_order(finder, query, "")
    assert indices is not None
    return np.isin(np.arange(finder.total), indices)


@given(
    st.lists(st.integers(-10, 10) | st.integers(-(10**9), 10**9), min_size=1, max_size=60),
    st.sampled_from(["x", "area"]),
    st.sampled_from(["int64", "uint8", "float32", "float64"]),
    st.sampled_from([1, 10, 16]),
)
def test_bars_hold_every_number_once(numbers: list[int], name: str, dtype: str, divisor: int) -> None:
    """Whatever the numbers are, each is in one bar, the one whose condition it fits."""
    values = (np.array(numbers) / divisor).astype(dtype)

    made = BarChart(name)
    count_numbers(made, values, np.ones(len(values), np.bool_))

    assert sum(bar.count for bar in made.bars) == len(numbers)
    column = FilterNumbers(values)
    for bar in made.bars:
        tests = [part.split() for part in bar.query.split(" and ")]
        fits = np.all([column.test(sign, QueryToken(text)) for _, sign, text in tests], axis=0)  # type: ignore[arg-type]
        assert fits.sum() == bar.count, bar


def test_a_scan_stops_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured after a stop, no filter starts it again, and nothing is left out after it goes on."""
    rows = Rows({str(number): (save(scene(0, 16, 16)), BOX) for number in range(200)})
    finder = Finder(Collection(rows))
    some, measured = threading.Event(), measure

    def measure_some(*args: Any) -> Any:
        if np.count_nonzero(finder.scan.facts["known"]) > 20:
            finder.scan.stop()
            some.set()
        return measured(*args)

    monkeypatch.setattr(scanning, "measure", measure_some)
    before = finder.scan.progress()
    finder.scan.start()
    assert some.wait(60)
    finder.scan.wait()
    monkeypatch.undo()
    stopped = finder.scan.progress()
    list_order(finder, "brightness > 0", "")

    assert before == {
        "running": False, "stopped": False, "total": 200, "measured": 0, "known": 0,
    }  # fmt: skip
    assert 0 < stopped["measured"] < 200
    assert finder.scan.progress() == {**stopped, "running": False, "stopped": True}
    finder.scan.start()
    finder.scan.wait()
    assert finder.scan.progress()["measured"] == 200
    finder.close()
    finder.scan.start()
    assert not finder.scan.progress()["running"]


def test_requests_of_the_panel(ask: Callable[..., Any], tmp_path: Path) -> None:
    """Names, errors with their place, counts; the rows follow the filter and the order."""
    asker = ask(make_photos(tmp_path / "photos", 12))

    names = {each["name"]: each for each in asker.json("api/find/names")["names"]}
    assert names["label"]["classes"] == ["cats", "dogs"]
    assert names["brightness"]["kind"] == "number"
    wrong = asker.json("api/find/check?q=label+%3D+cat")
    assert (wrong["ok"], wrong["at"], wrong["in"]) == (False, 8, "q")
    assert asker.json("api/find/check?sort=-nothing")["in"] == "sort"
    assert asker.json("api/find/check?q=brightness+%3C+9")["scans"]
    assert asker.json("api/find/facts")["measured"] == 0
    assert asker.request("api/find/scan", method="GET")[0] == 405
    assert asker.request("api/find/scan?do=run", method="POST")[0] == 400
    status, _, body = asker.request("api/find/scan?do=start", method="POST")
    assert (status, json.loads(body)["total"]) == (200, 12)
    asker.viewer.session.part("find", dict).scan.wait()
    found = asker.json("api/find/histograms?q=label+%3D+cats")
    assert (found["matched"], found["known"]) == (6, 1)
    assert [bar["query"] for bar in found["histograms"][1]["bars"]] == ["class = cats", "class = dogs"]
    rows = asker.json("api/rows?q=label+%3D+cats&sort=-nbytes")
    assert rows["total"] == 6
    assert asker.request("api/rows?q=label+%3D")[0] == 400


def pack_classes(path: Path, classes: int) -> Path:
    """Records without pictures: as many of each class as its number says, and one of the first."""
    names = [f"class {number}" for number in range(classes)]
    rows = [{"label": number} for number in range(classes) for _ in range(max(1, number))]
    ps.pack(rows, path, schema={"label": "label"}, classes=names)
    return path


def test_the_classes_that_fit_are_counted_first(ask: Callable[..., Any], tmp_path: Path) -> None:
    """Then those with most records; all of them, if they are asked for."""
    asker = ask(pack_classes(tmp_path / "p.lmdb", 50))

    def ask_bars(query: str) -> tuple[list[str], int]:
        (chart,) = asker.json(f"api/find/histograms?{query}")["histograms"]
        return [bar["label"] for bar in chart["bars"]], chart["more"]

    few, more = ask_bars("")
    assert (few[:2], len(few), more) == (["class 49", "class 48"], 40, 10)
    assert ask_bars("q=label+%3D+%22class+3%22")[0][:2] == ["class 3", "class 49"]
    every, more = ask_bars("whole=class&whole=other")
    assert (every, more) == ([f"class {number}" for number in (*range(49, 1, -1), 0, 1)], 0)


def test_the_page_names_what_filters_compare() -> None:
    """Each measured name and each problem is in the how-to."""
    page = (Path(__file__).parents[2] / "docs" / "howto" / "find-records.md").read_text(encoding="utf-8")

    assert [name for name in (*MEASURED, *PROBLEMS) if f"`{name}`" not in page] == []


def test_what_takes_long_is_counted_after_a_filter_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of many records are read for a filter, not when the panel is shown."""
    finder, every = Finder(Collection(Rows(make_cases()))), np.ones(len(make_cases()), np.bool_)
    whole = make_histograms(finder, every)
    monkeypatch.setattr("penstock.viewer.find.finder._FEW", 0)
    finder = Finder(Collection(Rows(make_cases())))
    with monkeypatch.context() as without:
        without.setattr(Rows, "ragged_column", None)
        shown = make_histograms(finder, every)
    list_order(finder, "boxes > 1", "")

    assert shown == []
    assert {"boxes", "area"} <= {each.name for each in whole}
    assert make_histograms(finder, every) == whole


QUICK: Final = frozenset({"files", "lmdb", "hdf5", "tar", "recordio"})
KINDS: Final = [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in MAKERS]


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_every_kind_of_store_are_found(kind: str, tmp_path: Path) -> None:
    """Any store is filtered by what its pictures are measured for, by key, and by class where it has one."""
    maker = MAKERS[kind]
    if maker.needs:
        pytest.importorskip(maker.needs)
    write_photos(tmp_path / "photos")
    with ps.open(maker.make(tmp_path), **maker.options) as store:
        finder = scanned(store)
        images: list[Any] = [Collection(store).image(index) for index in range(len(store))]
        widths = [image.shape[1] if isinstance(image, np.ndarray) else ps.decode(image).shape[1] for image in images]
        order = list_order(finder, "", "-.width")
        found = list_order(finder, "problem = tiny and .width > 12 and not duplicate and key ~ *", "")
        histograms = make_histograms(finder, np.ones(finder.total, np.bool_))

    assert order is not None
    assert found is not None
    assert [widths[index] for index in order.tolist()] == sorted(widths, reverse=True)
    assert found.tolist() == [index for index, width in enumerate(widths) if width > 12]
    assert {"problem", "width", "format"} <= {each.name for each in histograms}


def test_annotations_beside_a_folder_are_compared(tmp_path: Path) -> None:
    """Boxes and classes of a file of COCO are found as those of a store are; a picture without any has none."""
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / "images" / name).write_bytes(save(scene(1, 40, 32), "PNG"))
    boxes = [(1, 5, [2, 3, 10, 12]), (1, 6, [0, 0, 40, 10]), (2, 6, [1, 1, 5, 5])]
    coco = {
        "images": [{"id": 1, "file_name": "b.png", "width": 40, "height": 32}, {"id": 2, "file_name": "c.png"}],
        "categories": [{"id": 5, "name": "cup"}, {"id": 6, "name": "plate"}],
        "annotations": [
            {"id": number, "image_id": image, "category_id": category, "bbox": box, "area": 1, "iscrowd": 0}
            for number, (image, category, box) in enumerate(boxes)
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))

    with ps.open(tmp_path / "images") as store:
        finder = Finder(Collection(store, annotations=read_beside(store, tmp_path / "coco.json")))
        finder.scan.start()
        finder.scan.wait()
        found = {
            query: keys_by(finder, dict.fromkeys("abc"), query, "")
            for query in (
                "class = cup", "class = plate", "not boxes", "boxes > 1", ".area < 30", "problem = empty-annotation",
                "class = plate and not problem",
            )
        }  # fmt: skip
        charts = {each.name for each in make_histograms(finder, np.ones(finder.total, np.bool_))}

    assert found == {
        "class = cup": ["b"],
        "class = plate": ["b", "c"],
        "not boxes": ["a"],
        "boxes > 1": ["b"],
        ".area < 30": ["c"],
        "problem = empty-annotation": ["a"],
        "class = plate and not problem": ["b", "c"],
    }
    assert {"class", "boxes", "area"} <= charts


def test_rows_say_the_values_of_their_filter_and_their_order() -> None:
    """Of numbers, with the range of several; of problems their sizes; of texts and of what has no value nothing."""
    rows: dict[str, Row] = {str(seed): (save(scene(seed)), BOX) for seed in range(4)}
    rows["copy"], rows["tiny"] = rows["2"], (save(scene(9, 20, 30)), BOX)
    finder = scanned(Rows(rows))

    def describe(query: str, sort: str = "") -> list[list[str]]:
        return [row["values"] for row in describe_values(finder, query, sort, [2, 4, 5])]

    assert describe("copy", "duplicate") == [["duplicate 2"], ["duplicate 2"], []]
    assert [row.get("group") for row in describe_values(finder, "not copy", "", [2, 4, 5])] == [2, 2, None]
    assert describe("problem = tiny")[2] == ["width 20", "height 30"]
    assert describe("key ~ 2 and format = JPEG", "random:1") == [[], [], []]
    assert describe("width > 1 or index > 1", "-height")[2] == ["width 20", "index 5", "height 30"]
    assert keys_by(finder, rows, "copy", "") == ["copy"]
    assert describe("outlier > 3", "-outlier")[2][-1].startswith("outlier ")
    assert len(describe("outlier > 3", "-outlier")[2]) == 2
