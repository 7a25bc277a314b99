"""Folding a chain into a new full."""
