"""A store as a folder of images and annotations."""
