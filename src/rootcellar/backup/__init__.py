"""Chains in a store: what the engine does with them, a package for each deed."""
