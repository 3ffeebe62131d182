"""MXNet's RecordIO files.

Where to find what:

- the format, byte by byte: ``format.py``; how records are read: ``store.py``
"""
