"""Client-side encryption of snapshots, in the published format of age."""
