"""Whether a device can make the images of a dataset, and what a batch then holds."""

from __future__ import annotations

from penstock.datasets.base import Wrapper, spec_of
from penstock.sample import Tree

__all__ = ["find_packet_spec"]


def find_packet_spec(dataset: object) -> tuple[Tree | None, str]:
    """The spec of a sample with packets in place of its image, and why there is none.

    Parameters
    ----------
    dataset : dataset
        A :class:`~penstock.datasets.StoreDataset` or another with a method ``packet_spec``, or a dataset over such with
        the same samples: a subset, or several of one spec.

    Returns
    -------
    spec : tree of ArraySpec and RaggedSpec, or None
        With a :class:`~penstock.transforms.program.packet_program.PacketSpec` for the image.
    reason : str
        Why there is none; empty if there is one.
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
