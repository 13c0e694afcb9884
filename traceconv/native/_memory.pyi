"""Large numpy arrays in files instead of memory (``memory.c``)."""

def start(folder: str, limit: int, /) -> bool:
    """Allocate in files of ``folder``; False if they would stay in memory."""

def stop() -> int:
    """Allocate as usual again; how often pages had to leave memory."""

def resident() -> int:
    """Bytes of this process that are in memory."""
