"""Decision in, KV in place out."""
