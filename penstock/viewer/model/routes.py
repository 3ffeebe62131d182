"""Requests for what the model sees: a sample step by step, several draws of it, and batches.

Errors of the user's code are told with file and line. Seeds are text, since JavaScript's numbers have 53 bits.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.datasets.store.batch_assembly import batch_assembly
from penstock.datasets.user_code import is_user_file
from penstock.errors import ArgumentError, PenstockError, SampleError
from penstock.loader.order import length
from penstock.nested import NestedTensor
from penstock.ragged import Padded, Ragged
from penstock.sample import Array, Batch
from penstock.view.annotated import find_annotations
from penstock.view.batch_samples import BatchSamples, is_batch
from penstock.view.shown_pixels import as_array
from penstock.viewer.model.batches import build_batch
from penstock.viewer.model.findings import find_batch_problems, find_problems
from penstock.viewer.model.pictures import describe_value, draw_sample
from penstock.viewer.model.source import ModelSource
from penstock.viewer.model.steps import trace_sample
from penstock.viewer.server.answers import answer, read_index, read_int, session_of

__all__ = ["ROUTES"]

_MOST: Final = (1 << 63) - 1
_MOST_DRAWS: Final = 36
_MOST_SAMPLES: Final = 64
"""Samples of a batch that are drawn."""


def show_source(request: Request) -> Response:
    """What is viewed: ``{title, total, seed, batches, transform, notes}``."""
    source = _source_of(request)
    transform = source.transform_of(0) if source.total else None
    return answer({
        "title": source.title, "total": source.total, "seed": str(source.seed or 0),
        "batches": None if source.loader is None else length(source.loader), "has_loader": source.loader is not None,
        "transform": "" if transform is None else repr(transform)[:4000], "notes": _describe_seed(source),
    })  # fmt: skip


def show_steps(request: Request) -> Response:
    """A sample step by step: ``{index, seed, epoch, steps, warnings, notes}``."""
    source = _source_of(request)
    index, (seed, epoch) = read_index(request, source.total), _read_key(request, source)
    with naming_user_code():
        traced = trace_sample(source, index, seed, epoch, read_int(request, "side", 512, 32, 2048))
    return answer({
        "index": index, "seed": str(seed), "epoch": epoch, "steps": traced.steps, "warnings": traced.warnings,
        "notes": [*_describe_seed(source), *traced.notes],
    })  # fmt: skip


def show_draws(request: Request) -> Response:
    """One sample in ``n`` successive epochs, or with ``n`` successive seeds (``vary=seed``): ``{vary, draws}``."""
    source = _source_of(request)
    index, (seed, epoch) = read_index(request, source.total), _read_key(request, source)
    count, side = read_int(request, "n", 16, 1, _MOST_DRAWS), read_int(request, "side", 192, 32, 512)
    vary = request.query_params.get("vary", "epoch")
    if vary not in {"epoch", "seed"}:
        raise ArgumentError(f"vary must be epoch or seed, got {vary!r:.100}")
    form, roles = source.form_of(index), source.roles_of(index)
    draws: list[dict[str, Any]] = []
    for number in range(count):
        key = (seed, min(epoch + number, _MOST)) if vary == "epoch" else (min(seed + number, _MOST), epoch)
        with naming_user_code():
            found = find_annotations(source.build(index, *key), roles)
        drawn, _ = draw_sample(found, form, side)
        draws.append({"seed": str(key[0]), "epoch": key[1], **drawn, "warnings": find_problems(None, found, 0, [])})
    return answer({"index": index, "vary": vary, "draws": draws})


def show_batch(request: Request) -> Response:
    """A batch: ``{epoch, number, total, indices, fields, samples, warnings, notes}``."""
    source = _source_of(request)
    epoch, number = read_int(request, "epoch", 0, 0, _MOST), read_int(request, "number", 0, 0, 1 << 31)
    with naming_user_code():
        built = build_batch(source, epoch, number)
    images: list[Array] = []
    samples = list(_draw_samples(source, built.batch, built.indices, read_int(request, "side", 160, 32, 512), images))
    warnings: list[str] = []
    if images and len({image.dtype for image in images}) == 1:
        warnings = find_batch_problems(np.concatenate([image.ravel() for image in images]))
    return answer({
        "epoch": epoch, "number": number, "total": built.total, "seed": str(built.seed), "indices": built.indices,
        "fields": list(_describe_fields(built.batch, "")), "samples": samples, "warnings": warnings,
        "notes": [built.note] if built.note else [],
    })  # fmt: skip


@contextmanager
def naming_user_code() -> Iterator[None]:
    """Raise errors that are not penstock's as :class:`SampleError`, with the file and line of the user's code."""
    try:
        yield
    except (PenstockError, MemoryError):
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if is_user_file(frame.filename)] or frames
        text = " ".join(str(error).split())
        where = f", at {own[-1].filename}, line {own[-1].lineno}" if own else ""
        raise SampleError(f"{type(error).__name__}{f': {text}' if text else ''}{where}") from error


def _source_of(request: Request) -> ModelSource:
    source: ModelSource | None = session_of(request).parts.get("model")
    if source is None:
        raise ArgumentError("no loader or dataset is viewed; start with penstock view FILE.py:NAME or ps.view(loader)")
    return source


def _read_key(request: Request, source: ModelSource) -> tuple[int, int]:
    return read_int(request, "seed", source.seed or 0, 0, _MOST), read_int(request, "epoch", 0, 0, _MOST)


def _describe_seed(source: ModelSource) -> list[str]:
    """What is to be known of the seed that is shown first."""
    if source.loader is None or getattr(source.loader, "_seed_given", source.seed is not None):
        return []
    return ["The loader was given no seed: each run draws other numbers. Give seed= to have those of a run here."]


def _draw_samples(
    source: ModelSource, batch: Batch, indices: list[Any], side: int, images: list[Array]
) -> Iterator[dict[str, Any]]:
    """The samples of a batch as JSON; appends their images to ``images``."""
    try:
        parts: Any = BatchSamples(batch if is_batch(batch) else [batch])
    except ArgumentError:
        return
    assembly = batch_assembly(source.dataset)
    is_numbered = len(indices) == len(parts) and all(isinstance(index, int) for index in indices)
    for row in range(min(len(parts), _MOST_SAMPLES)):
        sample = parts[row] if is_batch(batch) else parts[row][0]
        index = indices[row] if is_numbered else 0
        found = find_annotations(sample, source.roles_of(index) if assembly is None else None)
        drawn, _ = draw_sample(found, source.form_of(index), side)
        if assembly is not None and (not assembly.form.takes_sizes or assembly.form.box_format != "xyxy"):
            drawn.pop("layers", None)  # boxes of all samples in one array, or no pixels
        if drawn.get("values", {}).get("dtype") and hasattr(found.image, "dtype"):
            images.append(as_array(found.image))
        yield {"row": row, "index": index if is_numbered else None, **drawn}


def _describe_fields(value: Batch, name: str) -> Iterator[dict[str, Any]]:
    """Name, type, dtype, shape and range of each value of a batch."""
    if isinstance(value, Padded | Ragged | NestedTensor):
        value = {each: getattr(value, each) for each in type(value).__annotations__}
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _describe_fields(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and value and not isinstance(value[0], str | int | float | bytes):
        if name and len({type(each) for each in value}) == 1:
            first = describe_value(value[0])
            yield {"name": name, **first, "type": f"{type(value).__name__} of {len(value)}, first: {first['type']}"}
            return
        for number, inner in enumerate(value):
            yield from _describe_fields(inner, f"{name}[{number}]")
    else:
        yield {"name": name or "batch", **describe_value(value)}


_shows: Final[list[tuple[str, Callable[[Request], Response]]]] = [
    ("source", show_source),
    ("steps/{index:int}", show_steps),
    ("draws/{index:int}", show_draws),
    ("batch", show_batch),
]
ROUTES = [Route(f"/api/model/{path}", show) for path, show in _shows]
