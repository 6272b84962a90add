"""The command line: `main` is its entry point, `kubectl` that of `kubectl topospread`.

A verb in `commands` reads its options (`options`, `request_options`) and manifests
(`manifest_files`, `manifest_objects`), makes a request, and calls it by `ClientOptions.client`: a
server, or with `--from` the API over what `state_source` loads into this process. The answer is a
message of the API; `documents` makes JSON and YAML of it, by its descriptor, and `output` and
`render` tables.

`input_files` finds files in folders and gives their text, without what `container_logs` takes out;
`json_values` and `yaml_values` make values of it, and `manifest_documents` objects. `completeness`
refuses a check of nothing.

What is given and cannot be used raises BadInput or click's UsageError, which `main` prints. A verb
imports no other, and what serves is imported by `serve` alone. What takes long to import
is imported where it is used: a verb starts within a few tenths of a second.
"""

import os

# gRPC's own library would log lines in another form, with bytes of unknown callers in them, such as
# the server name of a handshake. It reads this variable when it is loaded; errors that end the
# process are written all the same.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
