"""What replicas' agents, and who controls them, say to each other."""
