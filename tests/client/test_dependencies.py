"""The client needs grpcio and protobuf, and nothing else."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        allowed = {"grpc", "google", "typing_extensions", "topospread_client", "topospread_proto"}
        if root not in allowed and root not in sys.stdlib_module_names:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refusing())
import topospread_client
for module in pkgutil.iter_modules(topospread_client.__path__):
    importlib.import_module(f"topospread_client.{module.name}")
from topospread_client.arrays import int_array
print(type(int_array([1, 2], "uint32")).__module__, "topospread" in sys.modules)
"""


def test_every_module_is_imported_without_anything_else():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["array", "False"]), ended.stderr
