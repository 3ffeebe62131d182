"""A loader is iterated in child processes, as it is or with a change."""
