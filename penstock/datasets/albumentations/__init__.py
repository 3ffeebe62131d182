"""Transforms of albumentations, compiled to ops where they are known.

Where to find what:

- why a transform was compiled or not, and which are called: ``recognise.py``
- where albumentations' rules differ from penstock's: ``ops.py``
"""
