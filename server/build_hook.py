"""Has the build hook of the checkout above generate the modules that the server alone needs.

A source distribution has no `.proto` files: the modules are in it as they were generated.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GeneratedModulesHook(BuildHookInterface[Any]):
    """Runs before a wheel, an editable install or a source distribution is made."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate the modules, and tell hatch to ship them although git ignores them."""
        del version
        root = Path(self.root)
        hook = root.parent / "hatch_build.py"
        if hook.is_file():
            spec = importlib.util.spec_from_file_location("topospread_hatch_build", hook)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            module.generate(root.parent)
        build_data["artifacts"].append("/topospread/generated/**/*_pb2*")
