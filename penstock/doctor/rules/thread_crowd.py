"""Rule thread-crowd: workers that each bring threads of their own, more of them than there are cores."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from typing import Final

from penstock.doctor.findings import Finding
from penstock.doctor.subject import Subject, usable_cores

__all__ = ["find"]

_LINEAR_ALGEBRA: Final = (
    "numpy.linalg.",
    "scipy.linalg.",
    "numpy.dot",
    "numpy.matmul",
    "numpy.einsum",
    "numpy.tensordot",
)
_LIMITS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
_RAISED: Final = ("torch.set_num_threads", "cv2.setNumThreads")


def find(subject: Subject) -> Iterator[Finding]:
    """OpenCV, NumPy's linear algebra, or torch, with threads in every worker."""
    if subject.setting.workers == "serial":
        return
    yield from _opencv(subject)
    yield from _linear_algebra(subject)
    yield from _raised(subject)


def _opencv(subject: Subject) -> Iterator[Finding]:
    cv2 = sys.modules.get("cv2")
    if cv2 is None or subject.code.mentions("setNumThreads"):
        return
    threads, cores = int(cv2.getNumThreads()), usable_cores()
    workers = subject.setting.num_workers or 1
    if threads <= 1 or (subject.setting.num_workers is not None and threads * workers <= cores):
        return
    is_used = subject.code.mentions("cv2") or any(
        type(place.value).__module__.partition(".")[0] in {"albumentations", "imgaug"} for place in subject.graph.places
    )
    text = f"OpenCV starts {threads} threads in {subject.setting.each}, on {cores} cores: they push one another aside."
    if subject.setting.forks:
        text += " Its threads do not survive a fork either: workers may hang."
    advice = (
        "Call cv2.setNumThreads(0), in worker_init_fn for spawn and forkserver, else before the loader is made: images "
        "are made in parallel by workers already."
    )
    if not is_used:
        text = f"cv2 is imported. {text}"
    yield Finding("thread-crowd", "warning" if is_used else "note", "cv2.getNumThreads()", text, advice)


def _linear_algebra(subject: Subject) -> Iterator[Finding]:
    workers, cores = subject.setting.num_workers, usable_cores()
    if workers is None or "threadpool_limits" in {name for f in subject.code.functions for name in f.mentions}:
        return
    name, threads = next(
        ((name, int(os.environ[name])) for name in _LIMITS if os.environ.get(name, "").isdigit()), (None, cores)
    )
    if threads <= 1 or threads * workers <= cores:
        return
    for function in subject.code.functions:
        lines = [call.line for call in function.calls if call.name.startswith(_LINEAR_ALGEBRA)]
        lines += [
            function.line_of(node)
            for node in ast.walk(function.tree)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        ]
        if lines:
            limit = f"{name}={threads}" if name else "no limit is set"
            text = (
                f"Linear algebra in samples: NumPy takes {threads} threads ({limit}) in {subject.setting.each}, "
                f"on {cores} cores."
            )
            advice = "Set OMP_NUM_THREADS=1 before NumPy is imported, or limit it in worker_init_fn by threadpoolctl."
            yield Finding("thread-crowd", "note", function.where(*lines), text, advice)


def _raised(subject: Subject) -> Iterator[Finding]:
    workers, cores = subject.setting.num_workers or 1, usable_cores()
    for name in _RAISED:
        for function, call in subject.code.calls(name):
            given = call.node.args[0] if call.node.args else None
            threads = given.value if isinstance(given, ast.Constant) else None
            if isinstance(threads, int) and threads > 1 and threads * workers > cores:
                text = f"{name}({threads}) in {subject.setting.each}, on {cores} cores: they push one another aside."
                yield Finding("thread-crowd", "warning", function.where(call.line), text, f"Call {name}(1).")
