"""Requests for what the model sees: a sample step by step, several draws of it, and batches.

Errors of the user's code are told with file and line. Seeds are text, since JavaScript's numbers have 53 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.datasets.store.batch_assembly import batch_assembly
from penstock.datasets.user_code import describe_error
from penstock.errors import ArgumentError, PenstockError, SampleError
from penstock.loader.order import length
from penstock.nested import NestedTensor
from penstock.ragged import Padded, Ragged
from penstock.sample import Batch
from penstock.sheets.annotated import find_annotations
from penstock.sheets.batch_samples import BatchSamples, is_batch
from penstock.viewer.browse.layers import JsonObject
from penstock.viewer.model.batches import BuiltBatch, build_batch
from penstock.viewer.model.findings import find_batch_problems, find_problems
from penstock.viewer.model.pictures import describe_value, draw_sample
from penstock.viewer.model.source import ModelSource
from penstock.viewer.model.steps import trace_sample
from penstock.viewer.server.answers import answer, read_index, read_int, session_of

__all__ = ["ROUTES"]

_MOST: Final = (1 << 63) - 1
_MOST_DRAWS: Final = 36
_MOST_SAMPLES: Final = 64  # of a batch that are drawn
_STEP_SIDE, _DRAW_SIDE, _SAMPLE_SIDE = 512, 192, 160


def show_source(request: Request) -> Response:
    """Return what is viewed: ``{total, seed, batches, has_loader}``."""
    source = _source_of(request)
    of_loader = {"has_loader": source.loader is not None, "batches": length(source.loader)}
    return answer({"total": source.total, "seed": str(source.seed or 0), **of_loader})


def show_steps(request: Request) -> Response:
    """A sample step by step: ``{steps, warnings, notes}``."""
    source, index, seed, epoch = _read_sample(request)
    with naming_user_code():
        traced = trace_sample(source, index, seed, epoch, _STEP_SIDE)
    if source.loader is not None and not getattr(source.loader, "_seed_given", source.seed is not None):
        traced.notes.append("The loader was given no seed, so that each run draws other numbers. Give it seed=.")
    return answer({"steps": traced.steps, "warnings": traced.warnings, "notes": traced.notes})


def show_draws(request: Request) -> Response:
    """Show one sample in ``n`` successive epochs, or with ``n`` successive seeds (``vary=seed``): ``{vary, draws}``."""
    source, index, seed, epoch = _read_sample(request)
    vary = request.query_params.get("vary", "epoch")
    if vary not in {"epoch", "seed"}:
        raise ArgumentError(f"vary must be epoch or seed, got {vary!r:.100}")
    form, draws = source.part_of(index)[0].form, []
    for _ in range(read_int(request, "n", 16, 1, _MOST_DRAWS)):
        with naming_user_code():
            found = source.find(index, seed, epoch)
        drawn = draw_sample(found, form, _DRAW_SIDE)
        draws.append({"seed": str(seed), "epoch": epoch, **drawn, "warnings": find_problems(None, found, drawn)})
        seed, epoch = min(seed + (vary == "seed"), _MOST), min(epoch + (vary == "epoch"), _MOST)
    return answer({"vary": vary, "draws": draws})


def show_batch(request: Request) -> Response:
    """Return a batch: ``{epoch, number, total, indices, fields, samples, warnings, notes}``."""
    source = _source_of(request)
    epoch, number = read_int(request, "epoch", 0, 0, _MOST), read_int(request, "number", 0, 0, 1 << 31)
    with naming_user_code():
        built = build_batch(source, epoch, number)
    samples = list(_draw_samples(source, built))
    warnings = find_batch_problems([sample["values"] for sample in samples if "values" in sample])
    return answer({
        "epoch": epoch, "number": number, "total": built.total, "seed": str(built.seed), "indices": built.indices,
        "fields": list(_describe_fields(built.batch)), "samples": samples, "warnings": warnings,
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
        raise SampleError(describe_error(error)) from error


def _source_of(request: Request) -> ModelSource:
    source = session_of(request).parts.get("model")
    if not isinstance(source, ModelSource):
        raise ArgumentError("no loader or dataset is viewed; start with penstock view FILE.py:NAME or ps.view(loader)")
    return source


def _read_sample(request: Request) -> tuple[ModelSource, int, int, int]:
    """Return what is viewed, and the index, the seed and the epoch that are asked for."""
    source = _source_of(request)
    index = read_index(request, source.total)
    return source, index, read_int(request, "seed", source.seed or 0, 0, _MOST), read_int(request, "epoch", 0, 0, _MOST)


def _draw_samples(source: ModelSource, built: BuiltBatch) -> Iterator[JsonObject]:
    """The samples of a batch as JSON."""
    batch, indices = built.batch, built.indices
    try:
        parts = BatchSamples(batch if is_batch(batch) else [batch])
    except ArgumentError:
        return
    assembly = batch_assembly(source.dataset)
    numbers = [index for index in indices if isinstance(index, int)]
    is_numbered = len(numbers) == len(indices) == len(parts)
    for row in range(min(len(parts), _MOST_SAMPLES)):
        sample = parts[row] if is_batch(batch) else parts[row][0]
        part, _ = source.part_of(numbers[row] if is_numbered else 0)
        found = find_annotations(sample, part.roles if assembly is None else None)
        drawn = draw_sample(found, part.form, _SAMPLE_SIDE)
        if assembly is not None and (not assembly.form.takes_sizes or assembly.form.box_format != "xyxy"):
            drawn.pop("layers", None)  # boxes of all samples in one array, or no pixels
        yield {"row": row, "index": indices[row] if is_numbered else None, **drawn}


def _describe_fields(value: Batch, name: str = "") -> Iterator[JsonObject]:
    """Name, type, dtype, shape and range of each value of a batch."""
    if isinstance(value, Padded | Ragged | NestedTensor):
        value = {each: getattr(value, each) for each in type(value).__annotations__}
    elif isinstance(value, list | tuple) and not name:
        value = {f"[{number}]": each for number, each in enumerate(value)}
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _describe_fields(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and value:
        first = describe_value(value[0])
        yield {"name": name, **first, "type": f"{type(value).__name__} of {len(value)}, first: {first['type']}"}
    else:
        yield {"name": name or "batch", **describe_value(value)}


_shows = {"source": show_source, "steps/{index:int}": show_steps, "draws/{index:int}": show_draws, "batch": show_batch}
ROUTES = [Route(f"/api/model/{path}", show) for path, show in _shows.items()]
