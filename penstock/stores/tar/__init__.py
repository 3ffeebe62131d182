"""Tar shards as WebDataset has them: a stream, a store, a writer.

Where to find what:

- shards that are streams: ``stream.py``; tar with random access: ``store.py``, ``index.py``
"""
