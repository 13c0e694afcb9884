"""``python -m fuzz mutants|differential|coverage|matrix|stores``: see the modules :mod:`fuzz.run`,
:mod:`fuzz.differential`, :mod:`fuzz.targets`, :mod:`fuzz.matrix` and :mod:`fuzz.stores`.
"""

import sys
from importlib import import_module

COMMANDS = {
    "mutants": "fuzz.run",
    "differential": "fuzz.differential",
    "coverage": "fuzz.targets",
    "matrix": "fuzz.matrix",
    "stores": "fuzz.stores",
}

if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
    sys.exit(f"usage: python -m fuzz {'|'.join(COMMANDS)} [--help]")
sys.exit(import_module(COMMANDS[sys.argv[1]]).main(sys.argv[2:]))
