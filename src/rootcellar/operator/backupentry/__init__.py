"""The contract BackupEntry: the prefix of one cluster's backups in a bucket, and its credentials."""
