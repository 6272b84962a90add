"""The protobuf modules of the topospread API; all but this file are generated."""
