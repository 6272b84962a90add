"""Programs that use topospread as a caller would; the tests run them."""
