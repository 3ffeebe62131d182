"""How loaders and their workers are watched: torch's and penstock's."""
