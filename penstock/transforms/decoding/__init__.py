"""From encoded bytes to pixels, and back."""
