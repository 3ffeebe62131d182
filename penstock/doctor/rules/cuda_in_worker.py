"""Rule cuda-in-worker: CUDA in the processes that make samples."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import torch

from penstock.doctor.code import Call
from penstock.doctor.findings import Finding
from penstock.doctor.subject import Subject

__all__ = ["find"]

_ADVICE: Final = (
    "Make samples on the CPU and move whole batches in the training loop, with pin_memory=True and non_blocking=True."
)


def find(subject: Subject) -> Iterator[Finding]:
    """A CUDA tensor in the dataset, or code that makes one while it makes samples."""
    setting = subject.setting
    if setting.workers != "processes":
        return
    why = (
        "a forked process cannot use CUDA once its parent has"
        if setting.forks
        else "every worker needs a context of its own on the GPU, hundreds of megabytes"
    )
    for place in subject.graph.places:
        if issubclass(place.kind, torch.Tensor) and place.value.device.type == "cuda":
            text = f"A CUDA tensor, used by {setting.each}: {why}."
            yield Finding("cuda-in-worker", "error", place.path, text, _ADVICE)
    for function in subject.code.functions:
        lines = [call.line for call in function.calls if _moves(call)]
        if lines:
            text = f"It moves tensors to the GPU in {setting.each}: {why}."
            yield Finding("cuda-in-worker", "warning", function.where(*lines), text, _ADVICE)


def _moves(call: Call) -> bool:
    if call.name == ".cuda":
        return True
    given = [*call.node.args, *(keyword.value for keyword in call.node.keywords if keyword.arg == "device")]
    places = [value.value for value in given if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    is_move = call.name == ".to" or call.name.startswith("torch.")
    return is_move and any(place.partition(":")[0] == "cuda" for place in places)
