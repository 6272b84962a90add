"""Settings, each with a flag, a variable and a file key; knows no room but the error tree."""
