"""Collation of samples that have arrays of different lengths, where a dataset says in which form a batch holds them.

Used by loaders for datasets with :func:`~penstock.datasets.store.ragged_fields.ragged_forms` whose samples are built
one by one; gives the batches that filling gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from penstock.collate import ArrayBatch, allocate, rebuild_mapping, rebuild_sequence
from penstock.datasets.store.batch_assembly import FormCollate, batch_assembly
from penstock.datasets.store.ragged_fields import ragged_forms
from penstock.ragged import join_rows
from penstock.sample import Array, Batch, Sample, Tree, tree_leaves

__all__ = ["RaggedCollate", "map_ragged", "with_ragged"]


def with_ragged(collate: Callable[[list[Sample]], Batch], dataset: object) -> Callable[[list[Sample]], Batch]:
    """``collate``, or one over it if ``dataset`` has ragged fields or a form of batches.

    That is a :class:`RaggedCollate`, or a :class:`~penstock.datasets.store.batch_assembly.FormCollate`.
    """
    assembly = batch_assembly(dataset)
    if assembly is not None:
        return FormCollate(assembly, collate)
    forms = ragged_forms(dataset)
    return collate if forms is None else RaggedCollate(forms, collate)


class RaggedCollate:
    """Another collation, with some fields in one of the forms for arrays of different lengths.

    ``forms``: in the structure of a sample: "list", "padded" or "flat" (:mod:`penstock.ragged`) where an array's length
    varies, None elsewhere. ``collate``: collates all other fields.
    """

    def __init__(self, forms: Tree, collate: Callable[[list[Sample]], Batch]) -> None:
        self.forms, self.collate = forms, collate

    def __call__(self, samples: list[Sample]) -> Batch:
        """The batch of ``samples``; its ragged fields are NumPy arrays.

        Raises
        ------
        SampleError
            If the arrays of a field have several dtypes, or shapes that differ in more than the first axis.
        """
        found: list[list[Array]] = []
        others = []
        for sample in samples:
            found.append([])
            others.append(_without_ragged(self.forms, sample, found[-1]))
        forms = [form for form in tree_leaves(self.forms) if form is not None]
        columns = zip(*found, strict=True)
        joined = iter([join_rows(column, form, allocate) for column, form in zip(columns, forms, strict=True)])
        batch = self.collate(others)
        inner = batch.batch if isinstance(batch, ArrayBatch) else batch
        inner = map_ragged(lambda _: next(joined), self.forms, inner)
        return ArrayBatch(inner) if isinstance(batch, ArrayBatch) else inner


def map_ragged(function: Callable[[object], object], forms: Tree, batch: Batch) -> Batch:
    """``batch`` with ``function`` applied to each value that has a form in ``forms``; others are the same objects."""
    if forms is None:
        return batch
    if isinstance(forms, str):
        return function(batch)
    if isinstance(forms, Mapping):
        changed = {name: map_ragged(function, form, batch[name]) for name, form in forms.items()}
        return rebuild_mapping(batch, {**batch, **changed})
    values = [map_ragged(function, form, value) for form, value in zip(forms, batch, strict=True)]
    return type(batch)(*values) if hasattr(batch, "_fields") else rebuild_sequence(batch, values)


def _without_ragged(forms: Tree, sample: Sample, arrays: list[Array]) -> Sample:
    """``sample`` with a number in place of each ragged array, which is appended to ``arrays``."""

    def take(value: object) -> int:
        arrays.append(np.asarray(value))
        return 0

    return map_ragged(take, forms, sample)
