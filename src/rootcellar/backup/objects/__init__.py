"""What lies in an object: codecs, delta events, sealing."""
