"""The transports: each decodes a call, calls a use case and encodes the response; nothing else."""
