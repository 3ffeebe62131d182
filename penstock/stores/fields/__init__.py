"""What values of fields mean, whatever the container: pixels, boxes, arrays, images among bytes.

Where to find what:

- which column is the image, the label, the key: ``penstock/fields/roles.py``
- whether bytes are an image: ``image_signatures.py``
- boxes as corners in pixels: ``box_corners.py``
- pixels of any order of axes and channels: ``pixels.py``
"""
