"""What touches a real engine."""
