"""Datasets whose samples are made of several samples of another one.

Where to find what:

- how samples of several pictures are made: ``sample_mixture.py``; Mosaic, MixUp and CopyPaste have one file each
- how fields of several pictures become one: ``merged_fields.py``
- how only what is seen is drawn: ``penstock/transforms/program/seen_window.py``
"""
