"""The ops of a pipeline, one module a family.

Where to find what:

- where crops are drawn: ``crop.py``; natively, for a chunk at once: ``native/core/src/fill/steps.rs``
- OpenCV's rules of resizing: ``resize_opencv.py``; natively: ``native/core/src/resample/filter.rs``,
  ``native/core/src/resample/taps.rs``
- kernels: ``native/core/src/pixels/``
"""
