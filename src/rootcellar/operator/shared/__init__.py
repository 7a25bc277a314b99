"""What contracts have in common."""
