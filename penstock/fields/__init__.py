"""What a value is, and which value is the image, the label and the key of a record: once for all containers.

Where to find what:

- which column is the image, the label, the key; what a person may state of that: ``roles.py``
- usual names of columns, and which kind a name has: ``names.py``
- what kind an array is, what kind holds several values, and whether numbers are boxes: ``kinds.py``
"""
