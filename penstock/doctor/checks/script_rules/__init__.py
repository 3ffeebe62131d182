"""The rules for training scripts: those about one matter are in one module."""
