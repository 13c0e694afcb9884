"""Optional C parts. Without a compiler they are left out, and everything still works."""

from pathlib import Path

import numpy
from setuptools import Extension, setup

HERE = Path(__file__).parent
PARTS = {
    "_scan": ["scan"],
    "_encode": ["encode", "json", "strings"],
    "_memory": ["memory"],
    "_patch": ["patch"],
    "_wire": ["wire"],
    "_lanes": ["lanes"],
    "_records": ["records"],
    "_replay": ["replay"],
}

setup(
    ext_modules=[
        Extension(
            f"traceconv.native.{name}",
            [f"traceconv/native/{stem}.c" for stem in stems],
            include_dirs=[numpy.get_include()],
            depends=[str(h.relative_to(HERE)) for h in HERE.glob("traceconv/native/*.h")],
            optional=True,
        )
        for name, stems in PARTS.items()
    ]
)
