"""Candidates of advice: one file each, and one line here.

A candidate is a function ``find`` that takes a :class:`~penstock.doctor.situation.Situation` and yields a
:class:`~penstock.doctor.advice.candidate.Candidate` for each change that may help: what to write, what the
model says of it, and how to try it. :mod:`penstock.doctor.analysis` keeps those that bring enough.
"""

from __future__ import annotations

from penstock.doctor.advice.candidate import Candidate
from penstock.registry import Registry

__all__ = ["CANDIDATES", "Candidate"]

CANDIDATES = Registry("advice")
CANDIDATES.register("num_workers", "penstock.doctor.advice.num_workers:find")
CANDIDATES.register("worker-threads", "penstock.doctor.advice.worker_threads:find")
CANDIDATES.register("persistent_workers", "penstock.doctor.advice.persistent_workers:find")
CANDIDATES.register("prefetch_factor", "penstock.doctor.advice.prefetch_factor:find")
CANDIDATES.register("in_order", "penstock.doctor.advice.delivery_order:find")
CANDIDATES.register("slow-samples", "penstock.doctor.advice.slow_samples:find")
CANDIDATES.register("join-arrays", "penstock.doctor.advice.join_arrays:find")
CANDIDATES.register("faster-collation", "penstock.doctor.advice.faster_collation:find")
CANDIDATES.register("faster-sampler", "penstock.doctor.advice.faster_sampler:find")
CANDIDATES.register("uint8", "penstock.doctor.advice.uint8_batches:find")
CANDIDATES.register("threads-as-workers", "penstock.doctor.advice.threads_as_workers:find")
CANDIDATES.register("pin_memory", "penstock.doctor.advice.pin_memory:find")
CANDIDATES.register("packing", "penstock.doctor.advice.packing:find")
CANDIDATES.register("readahead", "penstock.doctor.advice.readahead:find")
CANDIDATES.register("page-cache", "penstock.doctor.advice.page_cache:find")
CANDIDATES.register("shard-size", "penstock.doctor.advice.shard_size:find")
CANDIDATES.register("resize-when-packing", "penstock.doctor.advice.resize_when_packing:find")
CANDIDATES.register("scaled-decoding", "penstock.doctor.advice.scaled_decoding:find")
CANDIDATES.register("seek-tables", "penstock.doctor.advice.seek_tables:find")
CANDIDATES.register("native-augmentation", "penstock.doctor.advice.native_augmentation:find")
