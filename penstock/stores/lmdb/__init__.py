"""LMDB environments of other programs, one module a layout.

Where to find what:

- entries and options of all layouts: ``layout.py``
- a layout of another program: one file like ``datum.py``
"""
