"""Package topospread.internal.v1: what the store keeps, and requests that are not looked into."""
