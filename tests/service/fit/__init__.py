"""The filters of the default profile."""
