"""Known mistakes in a loader, its dataset and the script that uses it."""
