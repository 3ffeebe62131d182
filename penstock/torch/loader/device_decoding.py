"""``DataLoader(decode="cuda")``: which device decodes, whether it can, and the recipe of such a loader."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch

from penstock.datasets.store.packet_specs import find_packet_spec
from penstock.errors import ArgumentError
from penstock.sample import Tree, tree_leaves
from penstock.torch.collate import default_collate
from penstock.torch.datasets import native
from penstock.workers.ray.options import RayWorkers, workers_kind

if TYPE_CHECKING:
    from penstock.loader.recipe import Recipe

__all__ = ["Decoding", "check_decode", "decode_on_device", "find_decoding", "find_device"]

_ISOLATED: Final = frozenset({"processes", "ray"})
"""Workers that are processes of their own."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """What decodes: the device, and the spec of samples with packets."""

    device: torch.device
    spec: Tree
    channels_last: bool


def check_decode(decode: str | torch.device, workers: str | RayWorkers, context: object) -> str:
    """``decode`` as a string, if it is one of those allowed.

    Raises
    ------
    ArgumentError
        If it is not, or if workers are to be processes.
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
    """The device that decodes for ``iter(loader)``; None: the CPU does. Nothing is started."""
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
    """What decodes for ``iter(loader)``; None: the CPU does.

    Raises
    ------
    ArgumentError
        If ``decode`` names a device that cannot make the batches; the message names what it lacks.
    """
    device = find_device(loader)
    if device is None:
        return None
    spec, reason = _find_spec(loader)
    if spec is None:
        raise ArgumentError(f"decode={loader.decode!r} is not possible: {reason}; use decode='cpu' or decode='auto'")
    return Decoding(device, spec, bool(loader.channels_last))


def decode_on_device(recipe: Recipe, decoding: Decoding) -> Recipe:
    """The recipe whose batches are made on the device."""
    from penstock.torch.cuda import build, runtime  # imported only where a device decodes

    opened = runtime.open_runtime(decoding.device)
    assert recipe.filling is not None, "there is a spec"
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
