"""What values of fields mean, whatever the container: names of columns, pixels, boxes, arrays.

Where to find what:

- the names of columns that are images, labels, keys: ``usual_names.py``; what they must hold: ``column_names.py``
- whether bytes are an image: ``image_signatures.py``
- boxes as corners in pixels: ``box_corners.py``
- pixels of any order of axes and channels: ``pixels.py``
"""
