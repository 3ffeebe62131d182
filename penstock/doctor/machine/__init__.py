"""What a machine gives a script, and what its processes and its device use."""
