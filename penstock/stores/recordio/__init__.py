"""MXNet's RecordIO files."""
