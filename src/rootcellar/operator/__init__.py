"""The operator: one package for each contract, and `shared`, what contracts have in common."""
