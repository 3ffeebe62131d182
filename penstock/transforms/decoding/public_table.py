"""penstock as a decoder of ``imread_benchmark``, the program that measures decoders of JPEG for their public table.

That program (github.com/ternaus/imread_benchmark; arXiv 2605.08731) finds decoders by the entry points of the group
``imread_benchmark.decoders``, which name subclasses of its ``BaseDecoder``. It imports this module where both are
installed; nothing in penstock does.
"""

from __future__ import annotations

from imread_benchmark.decoders import BaseDecoder  # not PyPI's imread-benchmark, which is another program

from penstock.sample import Array
from penstock.transforms.decoding.decode import decode

__all__ = ["PenstockDecoder"]


class PenstockDecoder(BaseDecoder):  # type: ignore[misc]  # it ships no types
    """Decodes on the thread that calls it: number of threads, groups and platforms are those of the base class."""

    name = "penstock"
    package_name = "penstock-data"

    def decode(self, data: bytes) -> Array:
        """Return a new array of RGB, (H, W, 3), uint8, that owns its memory."""
        return decode(data)
