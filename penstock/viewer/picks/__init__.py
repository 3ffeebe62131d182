"""Picked records and what they are exported as."""
