"""What notebooks show of stores, records and datasets: fields, a few values, and small pictures with annotations.

::

    _repr_html_ (penstock.wording) ──> render ──> text of repr, table of fields, sheet of a few samples (JPEG)

Asking changes nothing: at most :data:`_SAMPLES` records are read, evenly spaced; no column, no random number, and no
code of the user's is run: transforms are named and not called, and of a dataset of the user's only the ``repr`` is
shown. All texts are escaped. An image that cannot be decoded has a tile that says so; a store that cannot be read is
shown with the error in place of its records. Nothing is raised.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from penstock.datasets.store.dataset import StoreDataset
from penstock.datasets.subset import Subset
from penstock.errors import PenstockError
from penstock.sample import Record
from penstock.sheets.annotated import find_annotations
from penstock.sheets.showing import show
from penstock.sheets.shown_pixels import PixelForm
from penstock.sheets.tile_sheet import Cell, draw_sheet
from penstock.sheets.tiles import draw_tile
from penstock.stores.base import Store
from penstock.stores.location import is_remote_url
from penstock.wording import describe_value

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["render"]

Fields = str | Sequence[str] | Mapping[str, str] | None
_SAMPLES: Final = 8
_REMOTE_SAMPLES: Final = 3
_SIDE: Final = 150
_MOST_CHARACTERS: Final = 100
_MOST_CLASSES: Final = 12


def render(thing: object) -> str:
    """Return the page of an object, as HTML without scripts and without anything that is loaded."""
    parts = [_paragraph(repr(thing))]
    try:
        if isinstance(thing, Store):
            parts += _render_store(thing, None)
        elif isinstance(thing, StoreDataset):
            parts += [*_render_store(thing.store, thing.fields), *_name_transform(thing)]
        elif isinstance(thing, Subset) and isinstance(thing.dataset, StoreDataset):
            inner = thing.dataset
            numbers = [int(thing.indices[i]) for i in _spread(len(thing.indices), _count(inner.store))]
            parts += [*_render_store(inner.store, inner.fields, numbers), *_name_transform(inner)]
        elif isinstance(thing, Record):
            parts += _render_record(thing)
    except (PenstockError, OSError) as error:
        parts.append(_paragraph(f"{type(error).__name__}: {error}"))
    return f'<div style="overflow-x:auto">{"".join(parts)}</div>'


def _render_store(store: Store, fields: Fields, numbers: list[int] | None = None) -> Iterable[str]:
    rows = [(name, field.kind, _list_classes(field.classes)) for name, field in store.schema.fields.items()]
    yield _table(("field", "kind", "classes"), rows)
    if numbers is None:
        numbers = _spread(len(store), _count(store))
    if not numbers:
        return
    if any(field.is_image for field in store.schema.fields.values()):
        yield _picture(show(store, fields=_choose_fields(store, fields), indices=numbers, tile=_SIDE, columns=4))
    else:
        records = store.read(numbers)
        yield _table(
            ("key", *store.schema.fields), [(each.key, *map(describe_value, each.fields.values())) for each in records]
        )


def _choose_fields(store: Store, fields: Fields) -> Fields:
    """The structure of the samples, if it has an image; else all fields."""
    names = [fields] if isinstance(fields, str) else fields.values() if isinstance(fields, Mapping) else fields or ()
    return fields if any(name in store.schema and store.schema[name].is_image for name in names) else None


def _render_record(record: Record) -> Iterable[str]:
    yield _table(("field", "value"), [(name, describe_value(value)) for name, value in record.fields.items()])
    sample = find_annotations(dict(record.fields))
    if sample.image is not None:
        tile = draw_tile(sample, 2 * _SIDE, PixelForm("HWC"))
        yield _picture(draw_sheet([Cell(record.index, record.key, [sample], [tile])], record.key, "1 record", 1))


def _name_transform(dataset: StoreDataset) -> Iterable[str]:
    if dataset.transform is not None:
        yield _paragraph("Shown before the transform; penstock.show(dataset) shows samples before and after it.")


def _count(store: Store) -> int:
    return _REMOTE_SAMPLES if is_remote_url(store.url) else _SAMPLES


def _spread(total: int, count: int) -> list[int]:
    """``count`` numbers below ``total``, evenly spaced."""
    count = min(total, count)
    return [i * total // count for i in range(count)]


def _list_classes(classes: tuple[str, ...]) -> str:
    more = f", ... ({len(classes):,})" if len(classes) > _MOST_CLASSES else ""
    return ", ".join(map(_cut, classes[:_MOST_CLASSES])) + more


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def _paragraph(text: str) -> str:
    return f"<p><code>{html.escape(text)}</code></p>"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["".join(f"<th>{html.escape(_cut(text))}</th>" for text in head)]
    lines += ["".join(f"<td>{html.escape(_cut(text))}</td>" for text in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _picture(picture: Image) -> str:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85)
    encoded = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="samples" style="max-width:100%" src="data:image/jpeg;base64,{encoded}">'
