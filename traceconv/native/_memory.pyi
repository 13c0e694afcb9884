"""Large numpy arrays in files, while a limit on memory is set."""

import mmap

def start(folder: str, limit: int, /) -> bool:
    """Allocate in files of ``folder``; False if they would stay in memory."""

def stop() -> int:
    """Allocate as usual again; how often pages had to leave memory."""

def resident() -> int:
    """Bytes of this process that are in memory."""

def trim(least: int, /) -> None:
    """Give pages of freed memory back to the system, if there are ``least`` bytes of it."""

def apart(least: int, /) -> None:
    """From now on, give blocks of ``least`` bytes and more back as soon as they are freed."""

def watch(mapped: mmap.mmap, /) -> None:
    """Let the pages of a file mapped for reading leave memory, too, until :func:`forget`.

    Raises:
        ValueError: it is mapped for writing.
    """

def forget(mapped: mmap.mmap, /) -> None:
    """The opposite of :func:`watch`, before it is unmapped."""
