"""Datasets that are streams of parts, whose states fit any number of readers.

Where to find what:

- how parts are divided among workers and ranks: ``division.py``, by the states of ``partitioned.py``
- how a stream of shards is shuffled: ``dataset.py``
- the loaders' part: ``PreparedEpoch`` in ``penstock/loader/epoch.py``, and ``penstock/loader/position.py``
"""
