"""What requests cost a server: found by growing each field, not by hand."""
