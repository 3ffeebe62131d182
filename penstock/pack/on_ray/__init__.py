"""Packs, converts and makes seek tables in tasks of a Ray cluster: ``on="ray"``.

Where to find what:

- how functions run in order: ``tasks.py``; how a source is divided: ``parts.py``
- what a task writes: ``packs.py``, ``conversions.py``
"""
