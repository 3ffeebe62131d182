"""Folders of shards with an index, and files, of other loaders: MDS, LitData, FFCV."""
