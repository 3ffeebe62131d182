"""Write the constants of stored coefficients for the kernels, or tell that they differ (``--check``).

The source is ``native/core/src/jpeg/coefficients/tables.rs``; a device's compiler reads C only.
"""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "native/core/src/jpeg/coefficients/tables.rs"
HEADER = ROOT / "penstock/torch/cuda/kernels/coefficient_tables.h"


def generated() -> str:
    """Render the profiles and the masks as C."""
    source = SOURCE.read_text()
    numbers = r"\[([\d, ]*)\]"
    profiles = re.findall(rf"profile\((\d+), (\d+), {numbers}, {numbers}\)", source)
    masks = re.search(r"static MASKS: .*? = \[\n(.*?)\n\];", source, re.DOTALL)
    if masks is None or len(profiles) != 30:
        raise ValueError(f"{SOURCE} has another form")
    lists = [[int(mask) for mask in re.findall(r"\d+", found)] for found in re.findall(rf"&{numbers}", masks[1])]
    if len(lists) != 128:
        raise ValueError(f"{SOURCE} must have 128 lists of masks, got {len(lists)}")
    starts = [0, *itertools.accumulate(map(len, lists))]
    profile_rows = [f"{{{bits}, {first}, {{{least}}}, {{{extra}}}}}" for bits, first, least, extra in profiles]
    list_rows = [f"{{{start}, {len(masks).bit_length()}}}" for start, masks in zip(starts, lists, strict=False)]
    return (
        "// Made by native/kernel_tables.py from native/core/src/jpeg/coefficients/tables.rs; do not edit.\n\n"
        '#pragma once\n\n#include "grid.h"\n\n// clang-format off\n'
        "struct Profile {\n  u8 count_bits, first_count, least[8], extra_bits[8];\n};\n\n"
        "// By component (the first, others) and number, from 1 on.\n"
        f"TABLE Profile PROFILES[30] = {{\n{_lines(profile_rows)}}};\n\n"
        "// The codes of masks by component, group and width: where their masks begin, and the bits of a code.\n"
        "struct MaskCodes {\n  u16 first;\n  u16 bits;\n};\n\n"
        f"TABLE MaskCodes MASK_CODES[128] = {{\n{_lines(list_rows)}}};\n\n"
        f"TABLE u8 MASKS[{starts[-1]}] = {{\n{_lines([str(mask) for masks in lists for mask in masks])}}};\n"
    )


def _lines(items: list[str]) -> str:
    """Join items to lines of at most 120 columns."""
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) > 114:
            lines.append("")
        lines[-1] += f" {item},"
    return "".join(f" {line}\n" for line in lines)


def main() -> None:
    """Write the header, or compare it."""
    if "--check" not in sys.argv:
        HEADER.write_text(generated())
    elif HEADER.read_text() != generated():
        raise SystemExit(f"{HEADER} is not what `python native/kernel_tables.py` makes")


if __name__ == "__main__":
    main()
