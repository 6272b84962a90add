"""Settings, each with a flag, a variable and a file key; imports nothing but errors and bounded."""
