"""Candidates of advice: one function each, and one line here.

A function takes a :class:`~penstock.doctor.judge.situation.Situation` and yields an
:class:`~penstock.doctor.judge.diagnosis.Advice` for each change that may help: what to write, and how to try it; or a
fact, where a change cannot be tried. :mod:`penstock.doctor.judge.analysis` tries changes and keeps those that bring
enough.
"""

from __future__ import annotations

from penstock.registry import Registry

__all__ = ["CANDIDATES"]

CANDIDATES = Registry("advice")
CANDIDATES.register("main-threads", "penstock.doctor.judge.advice.worker_threads:find_main_threads")
CANDIDATES.register("num_workers", "penstock.doctor.judge.advice.num_workers:find")
CANDIDATES.register("worker-threads", "penstock.doctor.judge.advice.worker_threads:find")
CANDIDATES.register("persistent_workers", "penstock.doctor.judge.advice.loader_arguments:find_persistent_workers")
CANDIDATES.register("prefetch_factor", "penstock.doctor.judge.advice.loader_arguments:find_prefetch_factor")
CANDIDATES.register("in_order", "penstock.doctor.judge.advice.loader_arguments:find_delivery_order")
CANDIDATES.register("slow-samples", "penstock.doctor.judge.advice.sample_work:find_slow_samples")
CANDIDATES.register("join-arrays", "penstock.doctor.judge.advice.sample_work:find_join_arrays")
CANDIDATES.register("faster-collation", "penstock.doctor.judge.advice.sample_work:find_faster_collation")
CANDIDATES.register("faster-sampler", "penstock.doctor.judge.advice.sample_work:find_faster_sampler")
CANDIDATES.register("uint8", "penstock.doctor.judge.advice.sample_work:find_uint8_batches")
CANDIDATES.register("threads-as-workers", "penstock.doctor.judge.advice.loader_arguments:find_threads_as_workers")
CANDIDATES.register("pin_memory", "penstock.doctor.judge.advice.loader_arguments:find_pin_memory")
CANDIDATES.register("packing", "penstock.doctor.judge.advice.stored_samples:find_packing")
CANDIDATES.register("readahead", "penstock.doctor.judge.advice.stored_samples:find_readahead")
CANDIDATES.register("resize-when-packing", "penstock.doctor.judge.advice.stored_samples:find_resize_when_packing")
CANDIDATES.register("scaled-decoding", "penstock.doctor.judge.advice.stored_samples:find_scaled_decoding")
CANDIDATES.register("seek-tables", "penstock.doctor.judge.advice.stored_samples:find_seek_tables")
CANDIDATES.register("remote-stores", "penstock.doctor.judge.advice.remote_stores:find")
CANDIDATES.register("native-augmentation", "penstock.doctor.judge.advice.sample_work:find_native_augmentation")
