"""Which field of a sample is what in a form of batches: the image, boxes, their classes, keypoints.

Called by :mod:`penstock.datasets.store.sample_plan`. Fields are found by their kinds; nothing here reads a record.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from penstock.datasets.store.batch_assembly import BatchAssembly
from penstock.datasets.store.batch_forms import BatchForm
from penstock.datasets.store.selection import FieldSelection
from penstock.errors import ArgumentError
from penstock.fields.names import CLASS_NAMES
from penstock.sample import Field, Schema

if TYPE_CHECKING:
    from penstock.transforms.pipeline import Pipeline

__all__ = ["bind_form", "refuse_ragged", "warn_of_objects"]

_CROWD: Final = "crowd"
_BACKGROUND: Final = ("", "background", "bg", "none", "nothing", "void", "unlabeled", "unlabelled")
"""Names of a class that is no object."""


def refuse_ragged(ragged: object) -> str:
    """Return the form of ragged fields where batches have a form: "flat".

    Raises ArgumentError if ``ragged`` is given, too.
    """
    if ragged is not None:
        raise ArgumentError(f"give either batch_form or ragged, got ragged={ragged!r:.80}")
    return "flat"


def bind_form(
    form: str | BatchForm,
    selection: FieldSelection,
    transform: object,
    pipeline: Pipeline | None,
    layout: str | None = None,
) -> BatchAssembly:
    """The steps for samples of these fields.

    Parameters
    ----------
    form : str or BatchForm
        The form, or its name.
    selection : FieldSelection
        The fields of a sample.
    transform : callable, optional
        Of the dataset.
    pipeline : Pipeline, optional
        The same, if it is one: it says whether images are CHW.
    layout : str, optional
        Whether they are, if the transform is no pipeline, and it is known.

    Raises
    ------
    ArgumentError
        If the form is unknown, or samples lack what it needs.
    """
    chosen = form if isinstance(form, BatchForm) else BatchForm(form)
    names, kinds, stored = selection.names, selection.kind_of, selection.stored
    called = {at: at if isinstance(at, str) else field for at, field in names.items()}
    if len(set(called.values())) < len(called):
        raise ArgumentError(
            f"the fields of samples with batch_form must have different names, got {', '.join(called.values())}; "
            'give a mapping: fields={"image": "image", ...}'
        )
    images = [called[at] for at, kind in kinds.items() if kind == "image"]
    if len(images) != 1:
        raise ArgumentError(f"batch_form={chosen.name!r} needs one image in a sample, got {len(images)} of {called}")
    at_image = next(at for at, kind in kinds.items() if kind == "image")
    if transform is None and at_image not in selection.pixels:
        raise ArgumentError(
            f"batch_form={chosen.name!r} needs decoded images, got {images[0]!r}, which is stored encoded, "
            "and no transform; give transform=[T.Decode(), ...]"
        )
    ragged = {at: array for at, kind in stored.items() if (array := Field(kind).array) and array.axes[0] is None}
    boxes = [called[at] for at in ragged if kinds[at] == "boxes"]
    numbers = [called[at] for at, array in ragged.items() if len(array.axes) == 1 and array.dtype.kind in "iu"]
    labels = [name for name in CLASS_NAMES if name in numbers] if len(numbers) > 1 else numbers
    if (not chosen.takes_sizes and (len(boxes) != 1 or not labels)) or (chosen.first_label and not labels):
        raise ArgumentError(
            f"batch_form={chosen.name!r} needs one field of kind boxes, and one of their classes, of kind int64[*] (if "
            f"there are several, named {', '.join(CLASS_NAMES)}), got "
            f"{', '.join(f'{called[at]} ({kind})' for at, kind in stored.items())}; kinds= and fields= name them"
        )
    layout = layout if pipeline is None else pipeline.layouts[-1]
    return BatchAssembly(
        chosen, tuple(called.values()), selection.structure, layout, images[0], tuple(boxes),
        labels[0] if labels else "", tuple(called[at] for at in ragged if kinds[at] == "keypoints"),
        tuple(called[at] for at in ragged), tuple(called[at] for at in ragged if at in selection.instances),
        next((called[at] for at in ragged if names[at] == _CROWD and not chosen.keep_crowds), ""),
    )  # fmt: skip


def warn_of_objects(assembly: BatchAssembly | None, selection: FieldSelection, schema: Schema) -> None:
    """Warn of objects that a model would learn wrongly: crowds as single objects, the first class as background."""
    if assembly is not None:
        _warn_of_crowds(assembly, selection, schema)
        _warn_of_background(assembly, selection, schema)


def _warn_of_crowds(assembly: BatchAssembly, selection: FieldSelection, schema: Schema) -> None:
    """Warn where a store says which objects are crowds, and samples do not."""
    if assembly.form.keep_crowds or not assembly.boxes or _CROWD not in schema:
        return
    if schema[_CROWD].array is not None and _CROWD not in selection.names.values():
        warnings.warn(
            "the store has objects that are crowds, which are ordinary objects in batches without their field 'crowd': "
            "add it to fields, and they are left out; or keep them by "
            f"batch_form=penstock.BatchForm({assembly.form.name!r}, keep_crowds=True)",
            stacklevel=4,
        )


def _warn_of_background(assembly: BatchAssembly, selection: FieldSelection, schema: Schema) -> None:
    """Warn where the first class of a store is an object's, which some of torchvision's models take for background."""
    if assembly.form.name != "torchvision" or assembly.form.first_label is not None or not assembly.labels:
        return
    field = selection.names.get(assembly.labels, assembly.labels)
    classes = schema[field].classes
    if classes and classes[0].strip("_ ").casefold() not in _BACKGROUND:
        warnings.warn(
            f"label 0 of {field!r} is {classes[0]!r:.80}, and torchvision's Faster, Mask and Keypoint R-CNN and SSD "
            'take it for background: give batch_form=penstock.BatchForm("torchvision", first_label=1) for these, '
            "and first_label=0 for others, such as RetinaNet and FCOS",
            stacklevel=4,
        )
