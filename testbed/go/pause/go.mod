module rootcellar.dev/testbed/pause

go 1.24
