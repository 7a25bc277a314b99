"""What each verb does.  Its words and options are declared in `rootcellar.cli.table`."""
