"""The bars of the design, measured beside their yardsticks in one run."""
