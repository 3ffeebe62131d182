"""Transforms of albumentations, compiled to ops where they are known."""
