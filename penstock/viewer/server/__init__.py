"""Answers the requests of the page: who may ask, how errors are told, the thread that listens."""
