"""Decode pictures, damaged ones and random packets with a library of the kernels that checks every address.

Run by a test, in a process of its own: ``python -m tests.torch.cuda.sanitized LIBRARY [SECONDS]``, again and again with
other damage for so many seconds. Every buffer that kernels are given has its exact size, so that the sanitizer sees an
access outside of it.
"""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import torch

from penstock import _native
from penstock.torch.cuda.augmenting import Kernels
from penstock.torch.cuda.decoder import PacketDecoder, RowFormat
from tests.torch.cuda.host_kernels import HostKernels
from tests.torch.cuda.pictures import cases_of, jpegs, mutated, records

CPU: Final = torch.device("cpu")


def main(library: str, seconds: str = "0") -> None:
    """Decode everything; print how many packets there were."""
    kernels, decoded, damaged = HostKernels(Path(library)), 0, 0
    end = time.monotonic() + float(seconds)
    for first_seed in itertools.count(step=len(jpegs())):
        counts = decode_all(kernels, first_seed)
        decoded, damaged = decoded + counts[0] + decode_batches(kernels, first_seed), damaged + counts[1]
        if time.monotonic() >= end:
            break
    sys.stdout.write(f"decoded {decoded} packets, {damaged} of them damaged\n")


def decode_batches(kernels: Kernels, seed: int, device: torch.device = CPU) -> int:
    """Decode the pictures in batches, in one group and in several: the number of packets. All rows must be right."""
    decoded = 0
    for (mode, dtype), budget in itertools.product((("RGB", torch.uint8), ("L", torch.float16)), (1 << 40, 200_000, 1)):
        packets, expected = [], []
        for number, image in enumerate((*jpegs().values(), *records().values())):
            case = replace(next(cases_of(image, seed + number, count=1)), width=21, height=13, mode=mode)
            written, _, refused = case.write_packets(image, "cv2-area", "tiles")
            if not refused:
                packets.append(written)
                expected.append(case.fill(image, "cv2-area")[0][0])
        offsets = np.cumsum([0, *map(len, packets)])
        decoder = PacketDecoder(kernels, device, RowFormat(1 if mode == "L" else 3, 13, 21, dtype), budget)
        rows, status = decoder.decode(np.concatenate(packets), offsets, channels_last=budget == 1)
        assert not status.any()
        np.testing.assert_array_equal(rows.cpu().numpy(), np.stack(expected))
        decoded += len(packets)
    return decoded


def decode_all(kernels: HostKernels, first_seed: int) -> tuple[int, int]:
    """Decode each picture, whole, damaged and with a random scan: the numbers of packets and of damaged ones."""
    decoded = damaged = 0
    rng = np.random.default_rng(first_seed)
    for (_, image), seed in zip(jpegs().items(), itertools.count(first_seed)):
        tables = {kind: _native.build_index(image, kind) for kind in ("tiles", "rows")}
        for kind, table in tables.items():
            for bytes_ in itertools.chain([image], mutated(image, seed, count=25)):
                for number, case in enumerate(cases_of(image, seed, count=3)):
                    filter_name = ("bilinear", "bicubic", "cv2-area")[number]
                    packets, _, refused = case.write_packets(bytes_, filter_name, kind, table)
                    if refused:
                        continue
                    row_format = RowFormat(case.channels, case.height, case.width, torch.float16)
                    decoder = PacketDecoder(kernels, torch.device("cpu"), row_format)
                    _, status = decoder.decode(packets.copy(), np.array([0, len(packets)]))
                    decoded, damaged = decoded + 1, damaged + int(status[0] != 0)
                    data = int(packets[4 * 60 : 4 * 61].view("<i4")[0])
                    packets[data:] = rng.integers(0, 256, len(packets) - data, np.uint8)  # a scan of random bytes
                    decoder.decode(packets.copy(), np.array([0, len(packets)]))
    records_decoded, records_damaged = decode_records(kernels, first_seed)
    return decoded + records_decoded, damaged + records_damaged


def decode_records(kernels: HostKernels, seed: int) -> tuple[int, int]:
    """Decode records of coefficients with changed and with random bytes: the numbers of packets and of damaged ones."""
    decoded = damaged = 0
    rng = np.random.default_rng(seed)
    for record, number in zip(records().values(), itertools.count(seed)):
        for case in cases_of(record, number, count=3):
            packets, _, refused = case.write_packets(record, "bilinear", "tiles")
            assert not refused
            decoder = PacketDecoder(kernels, CPU, RowFormat(case.channels, case.height, case.width, torch.float16))
            data = int(packets[4 * 60 : 4 * 61].view("<i4")[0])
            for share in (0.0, 0.01, 1.0):
                is_changed = rng.random(len(packets) - data) < share
                packets[data:][is_changed] = rng.integers(0, 256, int(is_changed.sum()), np.uint8)
                _, status = decoder.decode(packets.copy(), np.array([0, len(packets)]))
                decoded, damaged = decoded + 1, damaged + int(status[0] != 0)
    return decoded, damaged


if __name__ == "__main__":
    main(*sys.argv[1:])
