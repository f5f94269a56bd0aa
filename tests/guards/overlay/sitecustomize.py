"""Has this process, and those that it starts, import loragate from the tree named by GUARDS_TREE.

The name does not begin with LORAGATE_, because tests start servers without such variables.
"""

import importlib
import os
import sysconfig
from pathlib import Path

_TREE = os.environ.get("GUARDS_TREE")

if _TREE:
    for _finder in Path(sysconfig.get_paths()["purelib"]).glob("__editable___loragate*_finder.py"):
        _mapping: dict[str, str] = importlib.import_module(_finder.stem).MAPPING
        _root = os.path.commonpath(list(_mapping.values()))
        _mapping.update({name: _TREE + path.removeprefix(_root) for name, path in _mapping.items()})
