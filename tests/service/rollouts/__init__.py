"""What becomes of rolling updates."""
