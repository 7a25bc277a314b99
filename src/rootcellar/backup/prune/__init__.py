"""Which backups go, and their going."""
