"""`topospread lint`."""
