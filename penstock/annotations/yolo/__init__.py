"""YOLO's text files."""
