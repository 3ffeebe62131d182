"""What a loader tells viewers of its work while it runs: ``DataLoader(..., view=True)``."""
