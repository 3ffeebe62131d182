"""Candidates of advice: one file each, and one line here.

A candidate is a function ``find`` that takes a :class:`~penstock.doctor.judge.situation.Situation` and yields a
:class:`~penstock.doctor.judge.candidate.Candidate` for each change that may help: what to write, what the
model says of it, and how to try it. :mod:`penstock.doctor.judge.analysis` keeps those that bring enough.
"""

from __future__ import annotations

from penstock.doctor.judge.candidate import Candidate
from penstock.registry import Registry

__all__ = ["CANDIDATES", "Candidate"]

CANDIDATES = Registry("advice")
CANDIDATES.register("main-threads", "penstock.doctor.judge.advice.worker_threads:find_main_threads")
CANDIDATES.register("num_workers", "penstock.doctor.judge.advice.num_workers:find")
CANDIDATES.register("worker-threads", "penstock.doctor.judge.advice.worker_threads:find")
CANDIDATES.register("persistent_workers", "penstock.doctor.judge.advice.persistent_workers:find")
CANDIDATES.register("prefetch_factor", "penstock.doctor.judge.advice.prefetch_factor:find")
CANDIDATES.register("in_order", "penstock.doctor.judge.advice.delivery_order:find")
CANDIDATES.register("slow-samples", "penstock.doctor.judge.advice.slow_samples:find")
CANDIDATES.register("join-arrays", "penstock.doctor.judge.advice.join_arrays:find")
CANDIDATES.register("faster-collation", "penstock.doctor.judge.advice.faster_collation:find")
CANDIDATES.register("faster-sampler", "penstock.doctor.judge.advice.faster_sampler:find")
CANDIDATES.register("uint8", "penstock.doctor.judge.advice.uint8_batches:find")
CANDIDATES.register("threads-as-workers", "penstock.doctor.judge.advice.threads_as_workers:find")
CANDIDATES.register("pin_memory", "penstock.doctor.judge.advice.pin_memory:find")
CANDIDATES.register("packing", "penstock.doctor.judge.advice.packing:find")
CANDIDATES.register("readahead", "penstock.doctor.judge.advice.readahead:find")
CANDIDATES.register("page-cache", "penstock.doctor.judge.advice.page_cache:find")
CANDIDATES.register("shard-size", "penstock.doctor.judge.advice.shard_size:find")
CANDIDATES.register("resize-when-packing", "penstock.doctor.judge.advice.resize_when_packing:find")
CANDIDATES.register("scaled-decoding", "penstock.doctor.judge.advice.scaled_decoding:find")
CANDIDATES.register("seek-tables", "penstock.doctor.judge.advice.seek_tables:find")
CANDIDATES.register("native-augmentation", "penstock.doctor.judge.advice.native_augmentation:find")
