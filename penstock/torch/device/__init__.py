"""Batches on a device: page-locked memory, prefetching on a side stream, and normalisation on the device."""
