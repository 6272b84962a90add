"""The ways in: each decodes a call, asks a service and encodes its answer; nothing else."""
