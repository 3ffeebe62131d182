"""CVAT's XML files."""
