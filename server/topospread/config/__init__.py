"""What a server is told at its start: flags, variables, and files that may change.

- ``settings``: every setting in groups, with what it does and the reason for its default;
  ``descriptions`` has them by name, ``values`` reads and checks them.
- ``loading.load_settings``: the settings that hold, or all that is wrong with them, a line each.
- ``documents``: YAML of two kinds, read strictly.
- ``files``: files that are read again when they change, and PEM files of TLS.

A setting that holds for good is a constant beside its use. Nothing here knows a transport, a store
or the rules of spreading; profiles are read in ``codec.scheduler_config``.
"""
