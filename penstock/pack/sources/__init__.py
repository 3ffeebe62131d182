"""Sources: what ``pack`` takes, and how it is read. A new one is one file here and one registration line.

The first source that recognises an object reads it: the most specific are registered first.

Where to find what:

- one file for each kind of source: stores, tables, datasets, iterators; ``docs/packing.md``
- how a schema is inferred: ``inference.py``
- what columns of tables hold: ``columns.py``; points of several columns: ``point_columns.py``
"""

from __future__ import annotations

from penstock.errors import ArgumentError
from penstock.pack.sources.base import Source, SourceOptions
from penstock.registry import Registry

__all__ = ["SOURCES", "Source", "SourceOptions", "open_source"]

SOURCES = Registry("source of records")
SOURCES.register("annotations", "penstock.pack.sources.annotations:AnnotationsSource")
SOURCES.register("manifest", "penstock.pack.sources.manifest:ManifestSource")
SOURCES.register("store", "penstock.pack.sources.store:StoreSource")
SOURCES.register("hugging-face", "penstock.pack.sources.hugging_face:HuggingFaceSource")
SOURCES.register("hugging-face-stream", "penstock.pack.sources.hugging_face:HuggingFaceStream")
SOURCES.register("frame", "penstock.pack.sources.frames:FrameSource")
SOURCES.register("dataset", "penstock.pack.sources.datasets:DatasetSource")
SOURCES.register("iterable", "penstock.pack.sources.iterables:IterableSource")


def open_source(src: object, options: SourceOptions) -> Source:
    """Return the source that ``src`` is.

    Raises
    ------
    ArgumentError
        If nothing can be read from it, or an option is invalid.
    PackError
        If its records have no schema.
    """
    for name in SOURCES:
        kind: type[Source] = SOURCES.get(name)
        if kind.recognises(src):
            return kind.open(src, options)
    raise ArgumentError(
        "the source must be a path, a store, a dataset with __getitem__ and __len__, or an iterable of samples, got "
        f"{type(src).__name__}"
    )
