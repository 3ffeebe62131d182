"""Loaders while they run."""
