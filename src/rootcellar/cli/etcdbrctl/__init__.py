"""etcd-backup-restore's command line: its subcommands, flags, variables and configuration file.

`sections` is the one table of what there is; `reading` makes values of a command line or a file; `before`,
`storing` and `living` carry the subcommands out.
"""
