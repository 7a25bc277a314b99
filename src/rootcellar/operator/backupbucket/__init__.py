"""The contract BackupBucket: a bucket of an object store for the backups of a seed."""
