"""Boxes, keypoints and masks, moved with the pixels.

Where to find what:

- how boxes follow pixels that were filled: ``moved_targets.py``; those of a chunk at once: ``chunk_targets.py``
- how the masks of objects follow, eight in one array: ``object_masks.py``
- how much of a box is visible, and how objects are removed with their values: ``objects.py``
- which kinds follow an image, and which names look like targets: ``field_kinds.py``
"""
