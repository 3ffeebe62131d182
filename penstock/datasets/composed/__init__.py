"""Datasets whose samples are made of several samples of another one."""
