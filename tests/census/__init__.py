"""A census of what producers can write, from their own sources, and of what is read.

To add a list, add an :class:`Inventory` to ``INVENTORIES`` of a module of this package (new modules
are picked up by themselves): names of tables, types or fields, their source and date, and a
function that returns the status of each, from the reader's own tables. Then run
``python -m tests.census > docs/reference/census.md``.

A next version of a producer is met by a diff of its source: new names go into a list, and the
census says which of them are counted and not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

READ = "read"
DESCRIBES = "describes"
LEFT = "left"
COUNTED = "counted"
DROPPED = "dropped"
UNCLASSIFIED = "unclassified"

STATUSES = {
    READ: "becomes events, counters, arguments or a class",
    DESCRIBES: "names, numbers and identity of read records",
    LEFT: "sums and copies of read records, not opened",
    COUNTED: "not read; if a file holds it, an issue names it and counts it",
    DROPPED: "not read and not counted: to be mended",
    UNCLASSIFIED: "device work of no known class, shown as a separate share",
}
"""The possible statuses of an entry."""


@dataclass(frozen=True)
class Inventory:
    """A list of what a producer can write.

    Attributes:
        reader: the name of the reader.
        title:  what the entries are.
        source: the producer's source that the list is from.
        date:   date of that source.
        entries: names.
        status: returns the status of an entry.
        known:  names in the reader's own tables; each must be an entry.
    """

    reader: str
    title: str
    source: str
    date: str
    entries: tuple[str, ...]
    status: Callable[[str], str]
    known: Collection[str] = ()

    def by_status(self) -> dict[str, list[str]]:
        """The entries by status."""
        found: dict[str, list[str]] = {status: [] for status in STATUSES}
        for entry in self.entries:
            found[self.status(entry)].append(entry)
        return found


def every() -> Iterator[Inventory]:
    """The inventories of all modules of this package, in the order of readers."""
    names = sorted(module.name for module in iter_modules(__path__))
    modules = [import_module(f"{__name__}.{name}") for name in names if name != "__main__"]
    yield from (one for module in modules for one in module.INVENTORIES)


def page() -> str:
    """The census in Markdown."""
    lines = [
        "# Census",
        "",
        "Records that producers of captures can write, from their sources, and how traceconv",
        "treats them. Printed by `python -m tests.census`.",
        "",
        *(f"- **{status}**: {text}" for status, text in STATUSES.items()),
        "",
        f"| Reader | List | Entries | {' | '.join(status.capitalize() for status in STATUSES)} |",
        f"|---|---|--:|{'--:|' * len(STATUSES)}",
    ]
    total: Counter[str] = Counter()
    for one in every():
        counts = {status: len(entries) for status, entries in one.by_status().items()}
        total.update(counts)
        cells = " | ".join(str(count or "") for count in counts.values())
        lines.append(f"| {one.reader} | {one.title} | {len(one.entries)} | {cells} |")
    cells = " | ".join(str(total[status]) for status in STATUSES)
    lines += [f"| | **all** | {total.total()} | {cells} |", ""]
    for one in every():
        lines += [f"## {one.reader}: {one.title}", "", f"From {one.source}, {one.date}.", ""]
        for status, entries in one.by_status().items():
            if entries:
                lines += [f"{status.capitalize()}: {', '.join(f'`{e}`' for e in entries)}.", ""]
    return "\n".join(lines)
