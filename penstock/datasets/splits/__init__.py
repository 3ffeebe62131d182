"""Splits of a dataset: at random, stratified, by groups."""
