"""Two stores side by side; predictions beside annotations."""
