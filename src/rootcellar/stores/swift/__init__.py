"""OpenStack Swift: a small client of our own, for keystone (v3) and for Swift's v1 authentication."""
