"""The language of filters, compared with an evaluation of the same tree record by record."""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.viewer.browse.collection import Collection
from penstock.viewer.find.finder import Finder
from penstock.viewer.find.language import (
    Combination,
    Condition,
    FieldTest,
    QueryError,
    QueryToken,
    parse_query,
    quote,
)
from penstock.viewer.find.order import list_order

CLASSES: Final = ("cat", "dog", "a hot dog", "and")
ORDERINGS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
Record = Mapping[str, Any]


def make_records() -> list[dict[str, Any]]:
    """Records with a field of each kind that filters compare."""
    rng = np.random.default_rng(29)
    return [
        {
            "label": int(rng.integers(-1, len(CLASSES))),
            "count": int(rng.integers(-2, 4)),
            "ratio": float("nan") if number % 7 == 0 else float(rng.integers(0, 6)) / 2,
            "note": ("", "Red car", "red", "blue [1] *", "2019/x")[number % 5],
            "meta": {"iso": number % 4 * 100, "lens": {"name": ("wide", "tele")[number % 2]}} if number % 3 else {},
            "sizes": rng.integers(0, 5, rng.integers(0, 4)).astype(np.int64),
            "boxes": rng.random((rng.integers(0, 3), 4)).astype(np.float32),
        }
        for number in range(40)
    ]


@pytest.fixture(scope="module")
def finder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finder]:
    """A pack of these records; -1 stands for a label that is missing."""
    path = tmp_path_factory.mktemp("find") / "p.lmdb"
    schema = {
        "label": "label", "count": "int", "ratio": "float", "note": "text", "meta": "json", "sizes": "int64[*]",
        "boxes": "boxes",
    }  # fmt: skip
    records = [{**each, "label": None if each["label"] == -1 else each["label"]} for each in make_records()]
    ps.pack(records, path, schema=schema, classes=list(CLASSES))
    with ps.open(path) as store:
        yield Finder(Collection(store))


def fits_text(value: str, text: str) -> bool:
    """``~``: part of the text, or a pattern for all of it; without regard to case."""
    if not set(text) & set("*?["):
        return text.lower() in value.lower()
    return re.fullmatch(fnmatch.translate(text), value, re.IGNORECASE) is not None


def values_of(name: str, record: Record) -> list[Any]:
    """The values of a name that a condition is tried with; none where it is missing."""
    if name.startswith("meta."):
        inner = {"meta.iso": record["meta"].get("iso"), "meta.lens.name": record["meta"].get("lens", {}).get("name")}
        return [] if inner[name] is None else [inner[name]]
    found = {"boxes": [len(record["boxes"])], "sizes": [int(each) for each in record["sizes"]]}
    is_missing = (name == "label" and record["label"] == -1) or (name == "ratio" and bool(np.isnan(record["ratio"])))
    return found.get(name, [] if is_missing else [record.get(name)])


def compares(name: str, sign: str, text: str, value: Any) -> bool:
    """Whether one value fits."""
    if name == "label" and sign == "=" and text in CLASSES:
        return bool(CLASSES[value] == text)
    if sign == "~":
        return fits_text(CLASSES[value] if name == "label" else str(value), text)
    if isinstance(value, str):
        return bool(ORDERINGS[sign](value, text))
    return bool(ORDERINGS[sign](value, float(text)))


def is_true(node: Condition, index: int, record: Record) -> bool:
    """A condition for one record, by plain Python."""
    if isinstance(node, Combination):
        if node.join == "not":
            return not is_true(node.nodes[0], index, record)
        join = all if node.join == "and" else any
        return join(is_true(each, index, record) for each in node.nodes)
    name = node.name.text
    if node.operator == "is missing":
        return bool(record["count"] == -1) if name == "count" else not values_of(name, record)
    if not node.operator:
        return is_found(name, index, record) if node.name.kind == "quoted" else has_value(name, record)
    sign = {"!=": "=", "!~": "~"}.get(node.operator, node.operator)
    found = any(compares(name, sign, each.text, value) for each in node.values for value in values_of(name, record))
    return found != node.operator.startswith("!")


def is_found(word: str, index: int, record: Record) -> bool:
    """Whether a word is in the key, in the text, or in the class."""
    label = CLASSES[record["label"]] if record["label"] >= 0 else ""
    return any(fits_text(each, word) for each in (str(index), record["note"], label))


def has_value(name: str, record: Record) -> bool:
    """Whether the name alone is true."""
    found = values_of(name, record)
    if name in {"label", "sizes"}:
        return len(found) > 0
    return any(found) and not (name == "count" and found == [-1])


NUMBERS: Final = st.sampled_from(["-1", "0", "1", "2", "1.5", "100", "300"])
TEXTS: Final = st.sampled_from(
    ["red", "Red car", "r?d", "*1*", "[", "blue [1] *", "tele", "2019/*", "and", 'a"b', "\\"]
)
ORDER: Final = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
LIKE: Final = st.sampled_from(["=", "!=", "~", "!~"])


def make_tests(name: str, signs: st.SearchStrategy[Any], texts: st.SearchStrategy[str]) -> st.SearchStrategy[FieldTest]:
    """Comparisons of a name."""
    one = st.builds(lambda sign, text: FieldTest(QueryToken(name), sign, (QueryToken(text),)), signs, texts)
    among = st.lists(texts, min_size=2, max_size=3).map(
        lambda each: FieldTest(QueryToken(name), "=", tuple(QueryToken(text) for text in each))
    )
    return one | among


NAMES: Final = ("label", "count", "ratio", "note", "meta.iso", "meta.lens.name", "sizes")
TERMS: Final = st.one_of(
    make_tests("label", LIKE, st.sampled_from(CLASSES)),
    make_tests("label", ORDER, NUMBERS),
    *(make_tests(name, ORDER, NUMBERS) for name in ("count", "ratio", "sizes", "boxes", "meta.iso")),
    *(make_tests(name, LIKE | ORDER, TEXTS) for name in ("note", "meta.lens.name")),
    st.sampled_from(NAMES).map(lambda name: FieldTest(QueryToken(name), "is missing")),
    st.sampled_from([*NAMES, "boxes"]).map(lambda name: FieldTest(QueryToken(name))),
    TEXTS.map(lambda text: FieldTest(QueryToken(text, kind="quoted"))),
)
CONDITIONS: Final = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        inner.map(lambda each: Combination("not", (each,))),
        st.lists(inner, min_size=2, max_size=3).map(lambda each: Combination("and", tuple(each))),
        st.lists(inner, min_size=2, max_size=3).map(lambda each: Combination("or", tuple(each))),
    ),
    max_leaves=8,
)


def write(node: Condition, rank: int = 0) -> str:
    """A condition as text; in parentheses where it binds less than what is around it."""
    if isinstance(node, Combination):
        if node.join == "not":
            return f"not {write(node.nodes[0], 2)}"
        own, word = (1, " and ") if node.join == "and" else (0, " OR ")
        text = word.join(write(each, own + 1) for each in node.nodes)
        return text if own >= rank else f"({text})"
    name = quote(node.name.text)
    if node.operator == "is missing":
        return f"{name} is missing"
    if not node.operator:
        escaped = node.name.text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"' if node.name.kind == "quoted" else name
    if len(node.values) > 1:
        return f"{name} in ({', '.join(quote(each.text) for each in node.values)})"
    return f"{name}{node.operator} {quote(node.values[0].text)}"


@settings(deadline=None)
@given(CONDITIONS)
def test_filters_are_evaluated_as_record_by_record(finder: Finder, node: Condition) -> None:
    """Printed and parsed again, a tree has the records for which plain Python finds it true."""
    indices = list_order(finder, write(node), "")

    expected = [index for index, record in enumerate(make_records()) if is_true(node, index, record)]
    assert indices is not None
    assert indices.tolist() == expected, write(node)


@pytest.mark.parametrize(
    ("query", "at", "part"),
    [
        ("label = cot", 8, "did you mean cat"),
        ("labels = 1", 0, "did you mean label"),
        ("ratio > big", 8, "not a number"),
        ("ratio ~ 1", 8, "~ compares text"),
        ("problem = tin", 10, "did you mean tiny"),
        ("(count = 1", 0, "not closed"),
        ("count = 1)", 9, "not expected"),
        ("count =", 7, "the end"),
        ("count = 1 and", 13, "the end"),
        ('note = "red', 7, "quote"),
        ("count in 1", 9, "parentheses"),
        ("count in (1 2)", 12, "commas"),
        ("count is 1", 9, "missing"),
        ("and", 0, "quotes"),
        ("note ~ " + "*a" * 11, 7, "stars"),
        ("(" * 60 + "a" + ")" * 60, 50, "nested"),
        ("not " * 60 + "a", 200, "nested"),
        ("a" * 4001, 4000, "4000 characters"),
    ],
)
def test_errors_name_the_place(finder: Finder, query: str, at: int, part: str) -> None:
    """What is wrong is said in a sentence, with the character at which it is, and what is near."""
    with pytest.raises(QueryError, match=re.escape(part)) as caught:
        list_order(finder, query, "")

    assert caught.value.at == at


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from(" ()=<>!~,\"'\\*[]andortmisé1.\x00\u202e"), max_size=60))
def test_any_text_is_read_or_refused(finder: Finder, query: str) -> None:
    """No text raises anything but an error of the language."""
    at = 0
    try:
        list_order(finder, query, "")
    except QueryError as error:
        at = error.at

    assert 0 <= at <= len(query)


@pytest.mark.parametrize(("written", "number"), [("15", 15), ("10.0", 10), ("true", 1), ("1e1", 10)])
def test_numbers_are_written_as_in_python(finder: Finder, written: str, number: int) -> None:
    """A number may have a fraction or an exponent; true is 1."""
    indices = list_order(finder, f"index < {written}", "")

    assert indices is not None
    assert len(indices) == number


@given(st.text(max_size=20))
def test_quoted_text_is_one_value(text: str) -> None:
    """What ``quote`` writes is read back as it is."""
    node = parse_query(f"key = {quote(text)}")

    assert isinstance(node, FieldTest)
    assert (node.name.text, node.operator) == ("key", "=")
    assert [(each.text, each.at) for each in node.values] == [(text, 6)]


def test_orders(finder: Finder) -> None:
    """Records without a value are last in both directions; a random order depends on its seed, not on the filter."""
    ratios = [record["ratio"] for record in make_records()]
    for sort, sign in (("ratio", 1), ("-ratio", -1)):
        order = list_order(finder, "", sort)
        assert order is not None
        assert order.tolist() == sorted(range(40), key=lambda at: (np.isnan(ratios[at]), sign * ratios[at], at))
    mixed = list_order(finder, "", "random:3")
    some = list_order(finder, "count > 0", "random:3")
    assert mixed is not None
    assert some is not None
    assert sorted(mixed.tolist()) == list(range(40)) != mixed.tolist()
    assert [index for index in mixed.tolist() if index in set(some.tolist())] == some.tolist()
    with pytest.raises(QueryError, match="random:3"):
        list_order(finder, "", "random:x")
