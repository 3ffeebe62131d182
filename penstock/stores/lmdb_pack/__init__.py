"""Packs: the LMDB files that penstock writes.

Where to find what:

- the format, byte by byte: ``format.py``; of small records: ``blocks.py``; ``docs/decisions/0022-*``
- its version: ``meta.py``; why records cannot be torn: ``docs/decisions/0002-page-seals.md``
- packs of several shards: ``manifest.py``; read by ``sharded.py``, written by ``sharded_writer.py``, joined by
  ``penstock/pack/merging.py``
- who reads ahead: ``PackMap.read_ahead``, in ``native/python/src/page_cache.rs``
"""
