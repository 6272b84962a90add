"""Access control: roles, hashed tokens, names in client certificates. Knows no transport."""
