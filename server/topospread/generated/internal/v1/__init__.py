"""Package topospread.internal.v1: the stored forms, and requests whose pods stay bytes."""
