"""What is seen while a script runs: its steps, and how its batches are built."""
