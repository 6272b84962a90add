"""The counted state: immutable snapshots and the builder that folds changes into them. No I/O."""
