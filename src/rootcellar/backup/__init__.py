"""Chains in a store: names, codecs, catalogue, capture, restore, verification, browsing, import."""
