"""What a value is, and which value is the image, the label and the key of a record: once for all containers."""
