"""Folders of images.

Where to find what:

- how a folder is listed, and its classes numbered: ``listing.py``; ``docs/decisions/0015-*``
- which folders are refused: ``folder_checks.py``
"""
