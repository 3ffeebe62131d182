"""Annotations of images in the formats people have, read into the same fields.

::

    folder, file, mapping ──> AnnotationFormat.read ──> RecordBuilder ──> Annotations
                              one file a format         checks, counts    .records, .classes, .problems

A new format is one file with a subclass of :class:`~penstock.annotations.base.AnnotationFormat`, and one line here.

Where to find what:

- what annotations become, and what is checked in them: ``records.py``; ``docs/decisions/0026-*``
- which places belong to a set of annotations: ``source.py``
- how annotations are written: ``writing.py``, ``coco/writer.py``, ``voc/writer.py``, ``yolo/writer.py``
"""

from __future__ import annotations

from penstock.annotations.reading import SourceLike, read
from penstock.annotations.result import AnnotationProblem, Annotations
from penstock.registry import Registry
from penstock.wording import list_public_names

__all__ = ["FORMATS", "WRITERS", "AnnotationProblem", "Annotations", "SourceLike", "read"]

FORMATS = Registry("annotation format", "penstock.annotations", "penstock.annotations.base:AnnotationFormat")
"""Formats by name; with ``format="auto"`` the first that recognises the source."""
FORMATS.register("coco", "penstock.annotations.coco.format:CocoFormat")
FORMATS.register("voc", "penstock.annotations.voc.format:VocFormat")
FORMATS.register("yolo", "penstock.annotations.yolo.format:YoloFormat")
FORMATS.register("cvat", "penstock.annotations.cvat.format:CvatFormat")
FORMATS.register("labelme", "penstock.annotations.labelme:LabelmeFormat")
FORMATS.register("mask_folders", "penstock.annotations.mask_folders:MaskFoldersFormat")
FORMATS.register("open_images", "penstock.annotations.open_images:OpenImagesFormat")
FORMATS.register("retinaface", "penstock.annotations.retinaface:RetinaFaceFormat")
FORMATS.register("path_list", "penstock.annotations.path_list:PathListFormat")

WRITERS = Registry("format of annotations that are written")
"""Formats that :func:`penstock.convert` writes, by name."""
WRITERS.register("coco", "penstock.annotations.coco.writer:CocoWriter")
WRITERS.register("voc", "penstock.annotations.voc.writer:VocWriter")
WRITERS.register("yolo", "penstock.annotations.yolo.writer:YoloWriter")


def __dir__() -> list[str]:
    return list_public_names(globals(), __all__)
