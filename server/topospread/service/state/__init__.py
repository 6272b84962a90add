"""The state itself: objects read, written, listed and watched, and the lease of who syncs it."""
