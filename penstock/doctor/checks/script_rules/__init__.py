"""The rules for training scripts: one file each, named after the rule."""
