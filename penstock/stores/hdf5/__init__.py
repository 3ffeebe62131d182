"""HDF5 files, read and written.

Where to find what:

- which dataset is what: ``roles.py``; how rows are read: ``rows.py``
- how a killed writer is resumed: ``writer.py``
"""
