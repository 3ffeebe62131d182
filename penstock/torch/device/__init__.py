"""Batches on their way to a device: page-locked memory, prefetching on a stream of its own, normalisation there."""
