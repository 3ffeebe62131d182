"""Records, thumbnails, pictures and annotations of what is viewed."""
