"""Compiled pipelines: one native call for a chunk of rows."""
