"""Ways to bring bytes from a peer's memory into one's own."""
