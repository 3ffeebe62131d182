"""``DataLoader(decode="cuda")``: which device decodes, whether it can, and the recipe of such a loader."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch

from penstock.datasets.base import Wrapper, spec_of
from penstock.errors import ArgumentError
from penstock.sample import Tree, tree_leaves
from penstock.torch.collate import default_collate
from penstock.torch.datasets import native
from penstock.workers.ray.options import RayWorkers, workers_kind

if TYPE_CHECKING:
    from penstock.loader.recipe import Recipe
    from penstock.torch.cuda.runtime import CudaRuntime

__all__ = ["Decoding", "check_decode", "decode_on_device", "find_decoding", "find_device", "find_packet_spec"]

_ISOLATED: Final = frozenset({"processes", "ray"})
"""Workers that are processes of their own."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """What decodes: the device's kernels and streams, and the spec of samples with packets."""

    runtime: CudaRuntime
    spec: Tree
    channels_last: bool


def check_decode(decode: str | torch.device, workers: str | RayWorkers, context: object) -> str:
    """``decode`` as a string, if it is one of those allowed.

    Raises ArgumentError if it is not, or if workers are to be processes.
    """
    text = str(decode)
    if text not in {"cpu", "auto", "cuda"} and not (text.startswith("cuda:") and text[5:].isdigit()):
        raise ArgumentError(f"decode must be 'cpu', 'cuda', 'cuda:<number>' or 'auto', got {decode!r}")
    if text.startswith("cuda") and (workers_kind(workers) in _ISOLATED or context is not None):
        raise ArgumentError(
            f"decode={text!r} needs threads as workers, because worker processes cannot share the device; leave out "
            "workers= and multiprocessing_context"
        )
    return text


def find_device(loader: Any) -> torch.device | None:
    """Return the device that decodes for ``iter(loader)``; None: the CPU does. Nothing is started."""
    decode = getattr(loader, "decode", "cpu")
    if decode == "cpu":
        return None
    if decode != "auto":
        return torch.device(decode)
    isolated = workers_kind(loader.workers) in _ISOLATED or loader.multiprocessing_context is not None
    if isolated or not torch.cuda.is_available():
        return None
    from penstock.torch.cuda.compiler import is_installed  # imported only where there is a device

    return torch.device("cuda") if is_installed() and _find_spec(loader)[0] is not None else None


def find_decoding(loader: Any) -> Decoding | None:
    """Return what decodes for ``iter(loader)``; None: the CPU does. Kernels are compiled, if they are not yet.

    Raises ArgumentError if ``decode`` names a device that cannot make the batches; the message names what it lacks.
    With "auto" it is a warning. Raises DeviceError if the device fails.
    """
    device = find_device(loader)
    if device is None:
        return None
    spec, reason = _find_spec(loader)
    if spec is None:
        raise ArgumentError(f"decode={loader.decode!r} is not possible: {reason}; use decode='cpu' or decode='auto'")
    from penstock.torch.cuda import runtime  # imported only where a device decodes

    try:
        opened = runtime.open_runtime(device)
    except ArgumentError as error:
        if loader.decode != "auto":
            raise
        warnings.warn(f"decode='auto' decodes on the CPU: {error}", stacklevel=6)
        return None
    return Decoding(opened, spec, bool(loader.channels_last))


def decode_on_device(recipe: Recipe, decoding: Decoding) -> Recipe:
    """Return the recipe whose batches are made on the device."""
    from penstock.torch.cuda import build  # imported only where a device decodes

    assert recipe.filling is not None, "there is a spec"
    opened = decoding.runtime
    rows = build.DeviceRows(opened, decoding.spec, recipe.filling.deliver, channels_last=decoding.channels_last)
    filling = replace(recipe.filling, make_job=functools.partial(build.DeviceJob, rows))
    return replace(recipe, filling=filling, receive=opened.receive)


def _find_spec(loader: Any) -> tuple[Tree | None, str]:
    """The spec of samples with packets, or why there is none."""
    if not loader._auto_collation:  # noqa: SLF001  # torch's name
        return None, "samples are not batched (batch_size=None)"
    if loader.collate_fn is not default_collate:
        return None, "it has a collate_fn, which is called with samples of the CPU"
    spec, reason = find_packet_spec(native(loader.dataset))
    if spec is not None:
        reason = _explain_ops(spec)
    return (None, reason) if reason else (spec, "")


def _explain_ops(spec: Tree) -> str:
    """Why an op of the images cannot be applied on a device; empty if all can."""
    from penstock.torch.cuda.augmenting_steps import explain_refusal  # imported only where a device may decode
    from penstock.transforms.program.packet_program import PacketSpec

    images = next(leaf for leaf in tree_leaves(spec) if isinstance(leaf, PacketSpec))
    ops = [*images.augmenting, *([images.erasing] if images.erasing else [])]
    refusals = [f"{op!r} {refusal}" for _, op in ops if (refusal := explain_refusal(op)) is not None]
    return refusals[0] if refusals else ""


def find_packet_spec(dataset: object) -> tuple[Tree | None, str]:
    """The spec of a sample with packets in place of its image, or None and the reason why there is none.

    ``dataset`` has a method ``packet_spec``, as :class:`~penstock.datasets.StoreDataset`, or is a dataset over such
    with the same samples: a subset, or several of one spec.
    """
    if isinstance(dataset, Wrapper):
        inner = list(dataset.wrapped_datasets())
        own = spec_of(dataset)
        if own is None or any(spec_of(each) != own for each in inner):
            return None, f"{type(dataset).__name__} does not fill rows as its datasets do"
        found = [find_packet_spec(each) for each in inner]
        refused = [reason for spec, reason in found if spec is None]
        if refused or any(spec != found[0][0] for spec, _ in found):
            return None, (refused or ["its datasets decode differently"])[0]
        return found[0]
    if not hasattr(dataset, "packet_spec"):
        return None, f"{type(dataset).__name__} is no StoreDataset or folder, whose images are encoded"
    spec, reason = dataset.packet_spec()
    if spec is not None and spec_of(dataset) is None:
        return None, f"{type(dataset).__name__} has a __getitem__ of its own"
    return spec, reason
