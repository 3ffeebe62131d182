"""``convert``: a store as one of another kind, with proof."""
