"""A pipeline step by step, and batches as a loader gives them."""
