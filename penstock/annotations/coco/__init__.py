"""COCO's JSON files."""
