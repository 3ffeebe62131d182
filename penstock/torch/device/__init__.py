"""Batches on a device: page-locked memory, prefetching on a side stream, and normalisation on the device.

Where to find what:

- how batches are copied ahead of their use, and from epoch to epoch: ``prefetching.py``, ``copying.py``
- a fake device that copies late: ``tests/torch/device/delayed_device.py``
- captures of graphs beside a device that decodes: ``capture_mode.py``
"""
