"""Packages topospread.internal.*; their modules are generated."""
