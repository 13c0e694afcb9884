"""Optional C parts. Without a compiler they are left out, and everything still works."""

from pathlib import Path

import numpy
from setuptools import Extension, setup

HERE = Path(__file__).parent
PARTS = {
    "traceconv._scan": ["_native_scan"],
    "traceconv._encode": ["_native_encode", "_native_json", "_native_strings"],
    "traceconv._memory": ["_native_memory"],
    "traceconv._patch": ["_native_patch"],
}

setup(
    ext_modules=[
        Extension(
            name,
            [f"traceconv/{stem}.c" for stem in stems],
            include_dirs=[numpy.get_include()],
            depends=[str(h.relative_to(HERE)) for h in HERE.glob("traceconv/*.h")],
            optional=True,
        )
        for name, stems in PARTS.items()
        if (HERE / f"traceconv/{stems[0]}.c").exists()
    ]
)
