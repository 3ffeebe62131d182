"""Writes the training script for what was recognised: ``templates/training.py.txt``, with the functions of the task.

The script packs a source once, or opens a store in place; divides it into training and validation; trains a small
network; saves it with optimiser and loader in one file, and continues from that file.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final

from penstock.init.recognition import IGNORED, TrainingData
from penstock.wording import escape_unprintable

__all__ = ["make_script"]

_LINE: Final = 120
_NAMES_SHOWN: Final = 5
_BATCH_SIZE: Final = 32
_STRIDE: Final = 16


@dataclass(frozen=True, slots=True)
class _Task:
    """What a script has for a task."""

    title: str  # what is trained
    size: tuple[int, int]  # height and width of the network's input
    head: str  # the last layers of the network
    outputs: str  # what ``make_network`` is given
    augment: tuple[str, ...]
    prepare: tuple[str, ...]
    """``augment`` and ``prepare``: operations between decoding and the layout, for training and for validation."""
    by: bool = False  # whether parts have equal shares of the values of the last field
    dataset: str = ""  # arguments of the dataset behind the transform


_POOLED: Final = "nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, outputs)"
_CROPS: Final = ("T.RandomResizedCrop(SIZE, scale=(0.3, 1.0))", "T.HorizontalFlip()")
_WHOLE: Final = ("T.Resize(SIZE)",)
_COLORS: Final = "T.ColorJitter(brightness=0.2, contrast=0.2)"
_POINTS: Final = "nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128 * 16, outputs)"
_TASKS: Final = {
    "classification": _Task("a classifier", (128, 128), _POOLED, "CLASSES", _CROPS, _WHOLE, by=True),
    "regression": _Task(
        "a network that estimates a number", (128, 128), _POOLED, "1", (*_WHOLE, _COLORS), _WHOLE
    ),
    "segmentation": _Task(
        "a network that finds the class of each pixel", (128, 128),
        'nn.Conv2d(128, outputs, 1), nn.Upsample(SIZE, mode="bilinear")', "CLASSES",
        ("T.Letterbox(SIZE, mask_fill=IGNORED)", "T.HorizontalFlip()", _COLORS),
        ("T.Letterbox(SIZE, mask_fill=IGNORED)",),
    ),
    "detection": _Task(
        "a detector", (256, 256), "nn.Conv2d(128, outputs, 1)", "4 + 1 + CLASSES",
        ("T.Letterbox(SIZE)", "T.HorizontalFlip()", _COLORS),
        ("T.Letterbox(SIZE)",), by=True, dataset=', batch_form="rows"',
    ),
    "landmarks": _Task(
        "a network that finds points", (128, 128), _POINTS, "2 * POINTS",
        ("T.Letterbox(SIZE)", _COLORS), ("T.Letterbox(SIZE)",), dataset=', ragged="list"',
    ),
    "points": _Task(
        "a network that finds points", (128, 128), _POINTS, "2 * POINTS",
        ("T.Letterbox(SIZE)", _COLORS), ("T.Letterbox(SIZE)",), dataset=', ragged="list"',
    ),
}  # fmt: skip


_KNOWN: Final = {"classification": "{} >= 0", "regression": 'abs({}) < float("inf")'}
"""Which values of the last field are known: missing classes are -1, missing numbers NaN."""


def make_script(found: TrainingData, output: Path) -> str:
    """Return the text of a training script.

    Parameters
    ----------
    found : TrainingData
        What :func:`penstock.init.recognise` found.
    output : Path
        Where the script is to be written; packs and the checkpoint get their names from it and from the source.
    """
    name = "points" if found.points else found.task
    task, functions = _TASKS[name], _read(name)
    fields = ", ".join(map(_quote, found.fields))
    ops = {
        name: ", ".join(["T.Decode()", *chosen, 'T.ToLayout("CHW", "uint8")'])
        for name, chosen in (("TRAIN", task.augment), ("CHECK", task.prepare))
    }
    constants = [f"FIELDS = ({fields})", *_list_constants(found), *(f"{name} = [{each}]" for name, each in ops.items())]
    return Template(_read("training")).substitute(
        title=_to_docstring(f"Train {task.title} on {found.form.path.name}: {found.reason}."),
        script=_to_docstring(output.name),
        anew=", and packs a source that was changed again" if found.form.kind != "store" else "",
        pack=_read("packing") if found.form.kind != "store" else "",
        functional="from torch.nn import functional as F\n" if "F." in functions else "",
        paths="\n".join(_list_paths(found)),
        checkpoint=_quote(f"{output.stem}.pt"),
        batch_size=_choose_batch_size(found.records),
        size=task.size,
        constants="\n".join(map(_break, constants)) + "\n",
        head=task.head,
        task=functions,
        open="\n".join(f"    {line}" for line in _list_opening(found, task)),
        outputs=task.outputs,
    )


def _list_constants(found: TrainingData) -> Iterator[str]:
    if found.classes:
        names = ", ".join(found.names[:_NAMES_SHOWN]) + (", ..." if len(found.names) > _NAMES_SHOWN else "")
        yield f"CLASSES = {found.classes}{f'  # {names}' if names.isprintable() and names else ''}"
    if found.task == "segmentation":
        yield f"IGNORED = {IGNORED}  # the value of pixels without a class"
    if found.task == "landmarks":
        shape = list(found.fields.values())[-1].kind.partition("[")[2].rstrip("]").split(",")  # float32[*,17,3]
        yield f"POINTS = {found.points}  # of an image" if found.points else f"POINTS = {shape[1]}  # of an object"
    if found.task == "detection":
        yield f"STRIDE = {_STRIDE}  # pixels of the input for a cell of the network's output"
        yield "SCALE = torch.tensor([SIZE[1], SIZE[0], SIZE[1], SIZE[0]])"


def _list_paths(found: TrainingData) -> Iterator[str]:
    yield f"SOURCE = Path({_quote(os.fspath(found.form.path))})"
    if found.form.kind != "store":
        name = found.form.path.stem if found.form.kind == "table" else found.form.path.resolve().name
        yield f"PACKS = Path({_quote(_place_packs(found.form.path, name))})  # written once, used again"


def _place_packs(source: Path, name: str) -> str:
    """The folder of packs: beside where the script runs, but not within the source."""
    folder = source if source.is_dir() else source.parent
    here = Path.cwd()
    inside = here == folder.resolve() or folder.resolve() in here.parents
    return os.fspath((Path(os.path.relpath(folder.resolve().parent)) if inside else Path()) / f"{name}-packs")


def _list_opening(found: TrainingData, task: _Task) -> Iterator[str]:
    """Yield the lines that make the datasets ``train`` and ``check``."""
    form = found.form
    options = f', format="{form.name}"' if form.kind == "annotations" else ""
    names = found.parts or ("train", "validation")
    if found.parts and not found.column:
        source = "SOURCE / part" if form.kind == "classes" else "SOURCE"
        split = ", split=part" if form.kind == "annotations" else ""
        places = (
            f'[pack({source}, f"{{part}}.lmdb"{options}{split}) for part in ({", ".join(map(_quote, found.parts))})]'
        )
        yield f"places = {places}"
        for name, ops, number in (("train", "TRAIN", 0), ("check", "CHECK", 1)):
            yield f"{name} = ps.StoreDataset(places[{number}], FIELDS, {ops}{task.dataset})"
        return
    if form.kind == "store":
        yield "store = ps.open(SOURCE)"
    else:
        yield f'store = ps.open(pack(SOURCE, "all.lmdb"{options}))'
    by = f", by={_quote(found.target)}" if task.by else ""
    if found.column:
        yield f"column = [str(value).strip().lower() for value in store.column({_quote(found.column)})]"
        listed = "[i for i, value in enumerate(column) if value == part]"
        yield f"parts = {{part: {listed} for part in ({', '.join(map(_quote, names))})}}"
    else:
        yield f'parts = ps.split(store, {{"train": 0.8, "validation": 0.2}}{by}, seed=SEED)'
    chosen = 'parts["{}"]'
    if found.task in _KNOWN and form.kind in {"table", "store"}:
        known = _KNOWN[found.task].format(f"store.column({_quote(found.target)})")
        yield f"known = {known}  # other records have no value, and are left out"
        chosen = '[i for i in parts["{}"] if known[i]]'
    for name, ops, part in (("train", "TRAIN", names[0]), ("check", "CHECK", names[1])):
        indices = chosen.format(part)
        yield f"{name} = ps.Subset(ps.StoreDataset(store, FIELDS, {ops}{task.dataset}), {indices})"


def _choose_batch_size(records: int) -> int:
    """Choose a batch size from 4 to 32 that gives at least four batches an epoch."""
    return max(4, min(_BATCH_SIZE, 1 << max(records // 4, 1).bit_length() - 1))


def _break(line: str) -> str:
    """A list of operations that is too long for a line, one a line."""
    if len(line) <= _LINE or "[" not in line:
        return line
    head, body = line.split("[", 1)
    parts = body.removesuffix("]").replace("), T.", ")\0T.").split("\0")
    return "\n".join([f"{head}[", *(f"    {part}," for part in parts), "]"])


def _to_docstring(text: str) -> str:
    """Return the text in lines that cannot end a docstring, whatever names it has."""
    plain = escape_unprintable(text).replace("\\", "/").replace('"', "'")
    return "\n".join(textwrap.wrap(plain, _LINE - 10, break_on_hyphens=False))


def _quote(text: str) -> str:
    return f'"{text}"' if '"' not in text and "\\" not in text and text.isprintable() else repr(text)


def _read(name: str) -> str:
    return resources.files("penstock.init").joinpath("templates", f"{name}.py.txt").read_text(encoding="utf-8")
