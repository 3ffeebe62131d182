"""A diagnosis as text, JSON, a page, a trace, annotations."""
