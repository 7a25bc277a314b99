"""Looking into a backup, and putting keys of it back."""
