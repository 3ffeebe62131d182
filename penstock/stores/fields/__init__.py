"""What values of fields mean, whatever the container: names of columns, pixels, boxes, arrays."""
