"""Who may do what: roles, hashed tokens, names in client certificates. Knows no transport."""
