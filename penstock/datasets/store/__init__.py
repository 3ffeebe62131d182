"""The dataset of the records of a store, and what its batches hold."""
