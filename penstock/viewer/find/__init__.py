"""Filters, facts of all records and histograms."""
