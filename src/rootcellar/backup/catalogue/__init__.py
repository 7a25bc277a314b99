"""What lies in a prefix: names, chains, records, and the documents that say whose it is."""
