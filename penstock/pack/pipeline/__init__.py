"""How records are read, checked and written by threads or processes."""
