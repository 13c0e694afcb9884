"""Where large numpy arrays lie: in files (``memory.c``), or in what earlier ones left
(``reuse.c``)."""

import mmap

def start(folder: str, limit: int, /) -> bool:
    """Allocate in files of ``folder``; False if they would stay in memory."""

def stop() -> int:
    """Allocate as usual again; how often pages had to leave memory."""

def resident() -> int:
    """Bytes of this process that are in memory."""

def trim(least: int, /) -> None:
    """Give pages of freed memory back to the system, if there are ``least`` bytes of it."""

def apart(least: int, kept: int, /) -> None:
    """From now on keep blocks of ``least`` bytes and more apart: freed, they go back to the
    system. Of smaller ones ``kept`` freed bytes stay. Has no effect where the C library cannot."""

def reuse(least: int, kept: int, /) -> None:
    """Make arrays of ``least`` bytes and more, of this thread and until :func:`stop`, of what
    earlier ones left, of which ``kept`` bytes wait."""

def watch(mapped: mmap.mmap, /) -> None:
    """Let the pages of a file mapped for reading leave memory, too, until :func:`forget`.

    Raises:
        ValueError: it is mapped for writing.
    """

def forget(mapped: mmap.mmap, /) -> None:
    """The opposite of :func:`watch`, before it is unmapped."""
