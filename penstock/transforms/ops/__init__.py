"""The ops of a pipeline, one module a family."""
