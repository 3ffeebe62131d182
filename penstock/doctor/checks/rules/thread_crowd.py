"""Rule thread-crowd: libraries that start threads in every worker, more threads than cores."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from typing import Final

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.subject import Subject
from penstock.system.control_group import count_usable_cores
from penstock.wording import counted

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
_SETTERS: Final = ("torch.set_num_threads", "cv2.setNumThreads")


def find(subject: Subject) -> Iterator[Finding]:
    """Find OpenCV, NumPy's linear algebra and torch if they use several threads in every worker."""
    if subject.settings.kind == "serial":
        return
    yield from _find_opencv_threads(subject)
    yield from _find_linear_algebra(subject)
    yield from _find_raised_limits(subject)


def _find_opencv_threads(subject: Subject) -> Iterator[Finding]:
    cv2 = sys.modules.get("cv2")
    if cv2 is None or subject.functions.mentions("setNumThreads"):
        return
    threads, cores = int(cv2.getNumThreads()), count_usable_cores()
    workers = subject.settings.num_workers or 1
    if threads <= 1 or (subject.settings.num_workers is not None and threads * workers <= cores):
        return
    is_used = subject.functions.mentions("cv2") or any(
        type(place.value).__module__.partition(".")[0] in {"albumentations", "imgaug"}
        for place in subject.graph.objects
    )
    text = f"OpenCV starts {threads} threads in {subject.settings.each_worker}, but there are {counted(cores, 'core')}."
    if subject.settings.uses_fork:
        text += " fork does not copy OpenCV's threads, so workers may hang."
    advice = (
        "Call cv2.setNumThreads(0): in worker_init_fn for spawn and forkserver, otherwise before you create the "
        "loader. The workers already run in parallel."
    )
    if not is_used:
        text = f"cv2 is imported. {text}"
    yield Finding("thread-crowd", "warning" if is_used else "note", "cv2.getNumThreads()", text, advice)


def _find_linear_algebra(subject: Subject) -> Iterator[Finding]:
    workers, cores = subject.settings.num_workers, count_usable_cores()
    if workers is None or "threadpool_limits" in {name for f in subject.functions for name in f.mentions}:
        return
    name, threads = next(
        ((name, int(os.environ[name])) for name in _LIMITS if os.environ.get(name, "").isdigit()), (None, cores)
    )
    if threads <= 1 or threads * workers <= cores:
        return
    for function in subject.functions:
        lines = [call.line for call in function.calls if call.name.startswith(_LINEAR_ALGEBRA)]
        lines += [
            node.lineno
            for node in ast.walk(function.tree)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        ]
        if lines:
            limit = f"{name}={threads}" if name else "no limit is set"
            text = (
                f"NumPy's linear algebra uses {threads} threads ({limit}) in {subject.settings.each_worker}, but there "
                f"are {counted(cores, 'core')}."
            )
            advice = (
                "Set OMP_NUM_THREADS=1 before NumPy is imported, or limit threads in worker_init_fn with threadpoolctl."
            )
            yield function.describe("thread-crowd", "note", lines, text, advice)


def _find_raised_limits(subject: Subject) -> Iterator[Finding]:
    workers, cores = subject.settings.num_workers or 1, count_usable_cores()
    for name in _SETTERS:
        for function, call in subject.functions.calls(name):
            argument = call.node.args[0] if call.node.args else None
            threads = argument.value if isinstance(argument, ast.Constant) else None
            if isinstance(threads, int) and threads > 1 and threads * workers > cores:
                text = (
                    f"{name}({threads}) is called in {subject.settings.each_worker}, but there are "
                    f"{counted(cores, 'core')}."
                )
                yield function.describe("thread-crowd", "warning", [call.line], text, f"Call {name}(1) instead.")
