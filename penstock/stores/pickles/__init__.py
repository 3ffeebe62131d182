"""Pickles of plain values, read without running code.

Where to find what:

- why a pickle in a container cannot run code: ``unpickler.py``
"""
