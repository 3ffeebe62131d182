"""Packs, converts and makes seek tables in tasks of a Ray cluster: ``on="ray"``."""
