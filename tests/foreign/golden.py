"""Writes down which field each column of a container becomes today: `golden_fields.json`, and `GOLDEN.md` for people.

::

    Case (columns of values) ──golden_kinds──> container ──ps.open, ps.pack──> "left -> image: image; key: number"

``python -m tests.foreign.golden`` in the root of the repository writes all files anew; names of kinds behind it write
only these. An answer is what is seen from outside: the fields of the schema, for a renamed one the column whose values
it has, and the column that the keys are; or the first sentence of the error. Kinds that cannot be written here keep the
answers that are there. `test_golden.py` compares.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import math
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import penstock as ps
from penstock.fields.roles import Stated
from penstock.pack.sources import SourceOptions, open_source
from penstock.pack.sources.base import KEY
from penstock.sample import Field, Schema
from penstock.stores.mongo.fields import find_layout, get_value
from penstock.transforms import HorizontalFlip
from penstock.transforms.targets.field_kinds import infer_kinds
from penstock.viewer.compare.predictions import read_predictions
from tests.foreign.golden_cases import CASES, Case, encode
from tests.foreign.golden_containers import CannotHold, Unstored, flatten
from tests.foreign.golden_kinds import KINDS, Kind, name_pictures
from tests.foreign.test_foreign import FOLDERS, container_of, options_of

__all__ = ["ANSWERS", "FOREIGN", "SUMMARY", "ask_foreign", "ask_kind", "dump", "load", "main", "render"]

ANSWERS: Final = Path(__file__).parent / "golden_fields.json"
FOREIGN: Final = Path(__file__).parent / "golden_foreign.json"
SUMMARY: Final = Path(__file__).parent / "GOLDEN.md"
NOT_HELD: Final = "cannot hold "
_MAX_MESSAGE: Final = 260
_LETTERS: Final = "pabcdefgh"
_ADDRESS: Final = re.compile(r"(mongodb|gridfs)://[^\s'\",;)]+")

Answers = dict[str, dict[str, str]]
Form = tuple[object, ...]


# ------------------------------------------------------------------------------------------------ one answer


def find_answer(kind: Kind, case: Case, folder: Path) -> str:
    """What a kind makes of a case, in words; the container is written to ``folder``."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            source = kind.write(folder, case.columns)
        except CannotHold as refusal:
            return f"{NOT_HELD}{refusal}"
        try:
            with contextlib.chdir(folder):  # relative paths of pictures
                answer = _WAYS[kind.way](source, case, folder)
        except CannotHold as refusal:
            return f"{NOT_HELD}{refusal}"
        except (ps.PenstockError, TypeError, ValueError) as error:
            answer = shorten(error, folder)
    said = {shorten(each.message, folder) for each in warned if issubclass(each.category, UserWarning)}
    return " | ".join([answer, *(f"warns: {text}" for text in sorted(said))])


def shorten(error: Exception | Warning | str, folder: Path) -> str:
    """The class of an error, and its first sentence, without what differs from run to run."""
    text = getattr(error, "message", None) or str(error)
    text = re.sub(r"'[0-9a-f]{24}'", "'ID'", text)
    text = _ADDRESS.sub(r"\1://SERVER", text.replace(f"{folder}/", "").replace(str(folder), "FOLDER"))
    first = re.split(r"(?<=[a-z)'\"])\. (?=[A-Z])", " ".join(text.split()))[0]
    return f"{type(error).__name__}: {first[:_MAX_MESSAGE]}"


def open_container(source: str | Unstored, case: Case, folder: Path) -> str:
    """The answer of `ps.open`; for documents that no server has, what it would find in them."""
    if isinstance(source, Unstored):
        if not case.stated.keys() <= {"fields", "key", "classes", "image", "label", "boxes"}:
            return open_container(source.url, case, folder)
        layout = find_layout(source.documents, Stated(**case.stated))
        records = [
            ps.Record(row, "", {name: get_value(each, path.split(".")) for name, path in layout.paths.items()})
            for row, each in enumerate(source.documents)
        ]
        keys = [str(get_value(each, layout.key.split("."))) for each in source.documents]
        return describe_records(layout.schema, records, keys, case.columns, folder)
    with ps.open(source, **case.stated) as store:
        return describe_store(store, case.columns, folder)


def read_source(source: Any, case: Case, folder: Path) -> str:
    """The answer of `ps.pack`, without the pack."""
    inspect.signature(ps.pack).bind(source, "packed.lmdb", **case.stated)
    columns = case.columns
    if not isinstance(source, list | dict | Iterator):
        with contextlib.suppress(CannotHold):
            columns = name_pictures(columns)
    opened = open_source(source, SourceOptions(**case.stated))
    if opened.unreadable:
        return f"unreadable: {opened.unreadable[0].reason.replace(f'{folder}/', '')}"
    keys, records = [], []
    for number, item in enumerate(opened.items(0)):
        fields = dict(opened.load(item.token))
        keys.append(str(fields.pop(KEY, item.key)))
        records.append(ps.Record(number, keys[-1], fields))
    return describe_records(opened.schema, records, keys, columns, folder)


def move_sample(source: list[dict[str, Any]], case: Case, folder: Path) -> str:
    """Which values of a sample follow the image."""
    if case.stated:
        raise CannotHold("options")
    found = [repr(infer_kinds(row, HorizontalFlip())) for row in source]
    kinds = infer_kinds(source[0], HorizontalFlip())
    differ = " (records differ)" if len(set(found)) > 1 else ""
    return "moves " + (", ".join(f"{name}: {kind}" for name, kind in kinds.items()) or "nothing") + differ


def read_as_predictions(source: str, case: Case, folder: Path) -> str:
    """Which columns name the image, the class, and the score and box of a prediction."""
    if case.stated:
        raise CannotHold("options")
    rows, column = read_predictions(Path(source))
    forms = list_forms(name_pictures(case.columns), folder)
    labels = [("s", str(row.label)) for row in rows]
    as_texts = {name: [("s", text_of(each)) for each in column] for name, column in case.columns.items()}
    label = next((name for name, found in as_texts.items() if found == labels), "a column's name")
    score = find_origin([("n", (round(row.score, 4),)) for row in rows], forms) or str(rows[0].score)
    box = f"; box: {rows[0].box}" if rows[0].box is not None else ""
    return f"{column} -> image; {label} -> label; score: {score}{box}"


_WAYS: Final[dict[str, Callable[[Any, Case, Path], str]]] = {
    "open": open_container,
    "pack": read_source,
    "move": move_sample,
    "predict": read_as_predictions,
}


def describe_store(store: ps.Store, columns: Mapping[str, Sequence[Any]], folder: Path) -> str:
    """The fields of a store, for renamed ones the column that they are, and the column of the keys."""
    try:
        records = [*store]
    except ps.PenstockError as error:
        return (
            f"{describe_records(store.schema, [], [*store.keys()], columns, folder)}; reading: {shorten(error, folder)}"
        )
    return describe_records(store.schema, records, [*store.keys()], columns, folder)


def describe_records(
    schema: Schema,
    records: Sequence[ps.Record],
    keys: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
    folder: Path,
) -> str:
    """As :func:`describe_store`, of records that were read."""
    forms = list_forms(columns, folder)
    origins = {name: _find_field_origin(name, schema, records, forms) for name in schema.fields}
    _add_last(origins, forms)
    fields = [
        f"{f'{origin} -> ' if (origin := origins[name]) and origin != name else ''}{name}: {describe_kind(field)}"
        for name, field in schema.fields.items()
    ]
    return "; ".join([*fields, f"key: {describe_keys(keys, columns)}"])


def describe_kind(field: Field) -> str:
    """The kind of a field, and its classes."""
    shown = ",".join(field.classes[:6]) + (f",... {len(field.classes)} in all" if len(field.classes) > 6 else "")
    return field.kind + (f"{{{shown}}}" if field.classes else "")


def describe_keys(keys: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> str:
    """The column that the keys are, or what they are."""
    for name, column in flatten(columns, ".").items():
        if [*map(text_of, column)] == [*keys]:
            return name
    numbers = [int(key) for key in keys if key.isascii() and key.isdigit()]
    for first, said in ((0, "number"), (1, "number from 1")):
        if numbers == [*range(first, first + len(keys))]:
            return said
    for form, said in (("[0-9a-f]{24}", "_id"), ("filename [0-9]+", "filename")):
        if all(re.fullmatch(form, key) for key in keys):
            return said
    return f"{keys[0]!r}, {keys[1]!r}, ..."


def text_of(value: Any) -> str:
    """A value as a key."""
    return (
        value
        if isinstance(value, str)
        else str(value.item() if isinstance(value, np.ndarray) and not value.ndim else value)
    )


def list_forms(columns: Mapping[str, Sequence[Any]], folder: Path) -> dict[str, list[list[Form]]]:
    """The forms in which the values of each column may be read: a path as the bytes of its file, bytes as numbers."""
    found = {}
    for name, column in {**columns, **flatten(columns, ".")}.items():
        ways = [[to_form(value) for value in column]]
        if all(isinstance(value, str) and value.startswith("photos/") for value in column):
            ways.append([to_form((folder / value).read_bytes()) for value in column])
        if all(isinstance(value, bytes) for value in column):
            ways.append([("n", tuple(map(float, value))) for value in column])
        found[name] = ways
    return found


def to_form(value: Any) -> Form:
    """A value as what can be compared, whatever holds it."""
    if isinstance(value, bytes | memoryview):
        return "b", hashlib.sha1(value).hexdigest()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ("none",)
    if isinstance(value, str):
        return "s", value
    try:
        numbers = np.asarray(value, np.float64).ravel().round(4)
    except (TypeError, ValueError):
        return "j", json.dumps(
            value, sort_keys=True, default=lambda each: each.tolist() if hasattr(each, "tolist") else ""
        )
    return "n", tuple(numbers.tolist())


def find_origin(values: list[Form], forms: Mapping[str, list[list[Form]]]) -> str:
    """The column with these values; empty if there is none."""
    return next((name for name, ways in forms.items() if values in ways), "")


def _find_field_origin(
    name: str, schema: Schema, records: Sequence[ps.Record], forms: Mapping[str, list[list[Form]]]
) -> str:
    values = [record.fields.get(name) for record in records]
    if not values:
        return ""
    own = [to_form(value) for value in values]
    if name in forms and own in forms[name]:
        return name
    if classes := schema[name].classes:
        texts: list[Form] = [
            ("s", classes[value]) if isinstance(value, int) and 0 <= value < len(classes) else ("none",)
            for value in values
        ]
        if found := find_origin(texts, forms):
            return found
    return find_origin(own, forms)


def _add_last(origins: dict[str, str], forms: Mapping[str, object]) -> None:
    """One field and one column that are left over belong together: its values were converted."""
    unknown = [name for name, origin in origins.items() if not origin]
    used = {*origins.values()}
    rest = [name for name in forms if name not in used and not any(each.startswith(f"{name}.") for each in forms)]
    if len(unknown) == 1 and len(rest) == 1:
        origins[unknown[0]] = rest[0]


# ------------------------------------------------------------------------------------------------ all answers


def ask_kind(name: str, folder: Path) -> dict[str, str]:
    """The answers of a kind, by case; skips the test where the kind cannot be written here."""
    kind = KINDS[name]
    if kind.needs:
        pytest.importorskip(kind.needs)
    (folder / "photos").mkdir(parents=True)
    for place, letter in enumerate(_LETTERS):
        for number in range(4):
            (folder / "photos" / f"{letter}{number}.jpg").write_bytes(encode(1000 + 10 * place + number))
    answers = {}
    for case in CASES.values():
        before = {*folder.iterdir()}
        answers[case.name] = find_answer(kind, case, folder)
        for path in {*folder.iterdir()} - before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return answers


def ask_foreign(containers: Path, folder: Path) -> Answers:
    """The answers of the containers that other libraries wrote: with the options that people know, and without."""
    answers: Answers = {}
    for name in FOLDERS:
        if (containers / name).is_dir():
            shutil.copytree(containers / name, folder / name, copy_function=shutil.copyfile)
            expected = json.loads((folder / name / "expected.json").read_text())
            container = container_of(folder / name, expected)
            answers[name] = {"without options": ask_container(container, {}, folder)}
            if options := options_of(name):
                answers[name]["with options"] = ask_container(container, options, folder)
    return answers


def ask_container(container: str | list[str], options: Mapping[str, Any], folder: Path) -> str:
    """The fields and keys of a container."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with ps.open(container, **options) as store:
                return describe_records(store.schema, [], [*store.keys()], {}, folder)
        except ps.PenstockError as error:
            return shorten(error, folder)


def load(path: Path = ANSWERS) -> Answers:
    """The answers that are written down: by case and kind, or by container and options."""
    found: Answers = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        case: {kind: each for kinds, each in said.items() for kind in kinds.split(", ")} for case, said in found.items()
    }


def dump(answers: Answers) -> str:
    """The text of a file of answers: for each case the different answers, and who gives each."""
    grouped = {}
    for case, said in sorted(answers.items()):
        kinds: dict[str, list[str]] = {}
        for kind in sorted(said):
            kinds.setdefault(said[kind], []).append(kind)
        grouped[case] = {", ".join(names): answer for answer, names in kinds.items()}
    return json.dumps(grouped, ensure_ascii=False, indent=1) + "\n"


# ------------------------------------------------------------------------------------------------ the summary

_TITLES: Final = {
    "image": "Which column is the image",
    "label": "Which column is the label",
    "key": "Which column names the records",
    "fields": "What other columns become",
}
_OWN_KEYS: Final = {f"key: {name}" for name in ("number", "number from 1", "_id", "filename")}
_HEAD: Final = """\
# Which column is what, today

Written by `python -m tests.foreign.golden`; compared by `test_golden.py`. A row is a case of `golden_cases.py`, a
column a kind of container; kinds that answer alike in all rows of a table share one. The whole answers, with the
sentences of errors, are in `golden_fields.json`.

A cell has the column that is asked for, and what kind of field it is where that is not the usual one (an encoded image;
a label). `-`: no column is it. `refused`: an error. Empty: the kind cannot hold the values. "What other columns become"
shows all fields but an encoded image that is called `image`, and the key where a column is it. `warns`: it warns.
"""


def render(answers: Answers) -> str:
    """The text of the summary: a table for each question, and in it one block of kinds after another."""
    parts = [_HEAD]
    containers = [name for name, kind in KINDS.items() if kind.way == "open"]
    others = [name for name in KINDS if name not in containers]
    for role, title in _TITLES.items():
        cases = [case.name for case in CASES.values() if case.role == role]
        for names, what in ((containers, "`ps.open`"), (others, "`ps.pack`, transforms, the viewer's predictions")):
            cells = {
                name: [_shorten_answer(answers.get(case, {}).get(name, ""), role) for case in cases] for name in names
            }
            columns: dict[tuple[str, ...], list[str]] = {}
            for name in names:
                columns.setdefault(tuple(cells[name]), []).append(name)
            lines = [f"| case | {' | '.join(map(', '.join, columns.values()))} |", "|---" * (len(columns) + 1) + "|"]
            lines += [
                f"| {case} | {' | '.join(row)} |"
                for case, row in zip(cases, zip(*columns, strict=True), strict=True)
                if any(row)
            ]
            parts.append(f"## {title}: {what}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _shorten_answer(answer: str, role: str) -> str:
    """The cell of an answer."""
    if not answer or answer.startswith(NOT_HELD):
        return ""
    said, *warned = answer.split(" | warns: ")
    return (_shorten_said(said, role) + (" warns" if warned else "")).replace("|", "\\|")


def _shorten_said(said: str, role: str) -> str:
    if re.match(r"[A-Za-z]*Error: |unreadable", said):
        return "refused"
    if said.startswith("moves "):
        return said
    said, _, unread = said.partition("; reading: ")
    suffix = ", unreadable" if unread else ""
    shown, columns = [], {}
    for part in said.split("; "):
        origin, _, rest = part.rpartition(" -> ")
        name, _, kind = rest.partition(": ")
        columns[name] = kind if name == "key" else (origin or name) + (f": {kind}" if kind not in {"", role} else "")
        if part != "image: image" and part not in _OWN_KEYS:
            shown.append(part.replace(" -> ", "->"))
    return ("; ".join(shown) or "-" if role == "fields" else columns.get(role, "-")) + suffix


def main(wanted: Sequence[str]) -> None:
    """Write the files anew."""
    answers: Answers = {name: {kind: a for kind, a in each.items() if kind in KINDS} for name, each in load().items()}
    answers = {name: answers.get(name, {}) for name in CASES}
    for name in wanted or KINDS:
        with tempfile.TemporaryDirectory(prefix="penstock-golden-") as folder:
            try:
                found = ask_kind(name, Path(folder).resolve())
            except pytest.skip.Exception as reason:
                sys.stderr.write(f"{name} keeps its answers: {reason}\n")
                continue
        for case, answer in found.items():
            answers[case][name] = answer
    ANSWERS.write_text(dump(answers), encoding="utf-8")
    containers = Path(os.environ.get("PENSTOCK_DATA", Path(__file__).parents[3] / "shared" / "data")) / "foreign"
    if containers.is_dir() and not wanted:
        with tempfile.TemporaryDirectory(prefix="penstock-golden-") as folder:
            FOREIGN.write_text(dump(ask_foreign(containers, Path(folder).resolve())), encoding="utf-8")
    SUMMARY.write_text(render(answers), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
