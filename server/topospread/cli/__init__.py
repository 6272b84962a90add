"""The command line: `main` finds a verb in `commands`, which calls a server and prints.

What is given and cannot be used raises BadInput or click's UsageError, which `main` prints.
"""

import os

# gRPC's own library would log lines in another form, with bytes of unknown callers in them, such as
# the server name of a handshake. It reads this variable when it is loaded; errors that end the
# process are written all the same.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
