"""Boxes, keypoints and masks, moved with the pixels."""
