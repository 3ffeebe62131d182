"""Tar shards as WebDataset has them: a stream, a store, a writer."""
