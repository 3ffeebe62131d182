"""Datasets that are streams of parts, whose states fit any number of readers."""
