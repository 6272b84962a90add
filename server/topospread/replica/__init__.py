"""Lists the store, then follows its log, and answers how fresh the snapshot is."""
