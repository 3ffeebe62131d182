"""What a loader tells viewers of its work while it runs: ``DataLoader(..., view=True)``.

Where to find what:

- who writes: ``publishing.py``, an ``Observer`` of ``penstock/trace.py``; the file: ``live_file.py``
- times of samples of a few batches: ``penstock/workers/slow_samples.py``
- who reads: ``penstock/viewer/live/``, ``penstock/viewer/page/live.js``
"""
