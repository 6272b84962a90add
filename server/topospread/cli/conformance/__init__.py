"""Recorded answers of a real kube-scheduler, asked of a server again."""
