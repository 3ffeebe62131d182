"""Rules about samples that are made on a GPU: cuda-in-worker, and copy-each-sample for loaders without workers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import torch

from penstock.doctor.checks.findings import Finding
from penstock.doctor.checks.functions import FunctionCall, UserFunction
from penstock.doctor.checks.script_subject import NO_DEVICE, ScriptSubject
from penstock.doctor.checks.subject import Subject

__all__ = ["find_copies_of_samples", "find_cuda_in_workers"]

_WORKER_ADVICE: Final = (
    "Make samples on the CPU. Move whole batches to the GPU in the training loop, with pin_memory=True and "
    "non_blocking=True."
)


def find_cuda_in_workers(subject: Subject) -> Iterator[Finding]:
    """Find CUDA tensors in the dataset, and functions that use CUDA while they make samples."""
    settings = subject.settings
    if settings.kind != "processes":
        return
    why = (
        "a forked process cannot use CUDA if its parent has used it"
        if settings.uses_fork
        else "every worker needs its own CUDA context, which takes hundreds of megabytes of GPU memory"
    )
    for place in subject.graph.objects:
        if issubclass(place.kind, torch.Tensor) and place.value.device.type == "cuda":
            text = f"{settings.each_worker.capitalize()} uses this CUDA tensor: {why}."
            yield Finding("cuda-in-worker", "error", place.path, text, _WORKER_ADVICE)
    for function, lines in _find_moves(subject):
        text = f"This function moves tensors to the GPU in {settings.each_worker}: {why}."
        yield function.describe("cuda-in-worker", "warning", lines, text, _WORKER_ADVICE)


def _find_moves(subject: Subject) -> Iterator[tuple[UserFunction, list[int]]]:
    """Functions that move tensors to the GPU while they make samples, and the lines where they do."""
    for function in subject.functions:
        lines = [call.line for call in function.calls if _moves_to_cuda(call)]
        if lines:
            yield function, lines


def _moves_to_cuda(call: FunctionCall) -> bool:
    if call.name == ".cuda":
        return True
    arguments = [*call.node.args, *(keyword.value for keyword in call.node.keywords if keyword.arg == "device")]
    devices = [value.value for value in arguments if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    is_move = call.name == ".to" or call.name.startswith("torch.")
    return is_move and any(device.partition(":")[0] == "cuda" for device in devices)


_SAMPLE_ADVICE: Final = (
    "Make samples on the CPU, and move whole batches to the GPU in the training loop: with workers, pin_memory=True "
    "and non_blocking=True, that takes no time of the main process."
)
_OF_SAMPLES: Final = frozenset({"__getitem__", "__iter__", "__next__"})


def find_copies_of_samples(subject: ScriptSubject) -> Iterator[Finding]:
    """Find functions that move samples to the GPU in the main process, and a ``collate_fn`` that moves batches."""
    if subject.samples.settings.kind != "serial":
        return
    cost = "" if subject.has_device else NO_DEVICE
    for function, lines in _find_moves(subject.samples):
        if function.entry_point in _OF_SAMPLES:
            text = "This function copies each sample to the GPU by itself, and the main process waits for each copy."
            yield function.describe("copy-each-sample", subject.device_severity(), lines, text, _SAMPLE_ADVICE, cost)
        elif function.function is subject.samples.argument("collate_fn"):
            text = "collate_fn copies the batch to the GPU, so that it cannot run in worker processes."
            yield function.describe("copy-each-sample", "note", lines, text, _SAMPLE_ADVICE, cost)
