"""``traceconv cache``: what is kept for the next analysis of the same files."""

from __future__ import annotations

import click

from traceconv.cli import options, say
from traceconv.options import values


@click.command(cls=options.Command, short_help="Show or clear what is kept between analyses.")
@options.option(
    "--clear", is_flag=True, section="Output", usual=True, help="Remove everything that is kept."
)
@options.option(
    "--limit",
    "most",
    metavar="SIZE",
    section="Output",
    usual=True,
    callback=options.parsed(values.size),
    help="Keep at most so much, from now on, in units of 1024.  [default: 1G]",
)
@options.as_json
@options.chatter
def cache(clear: bool, most: int | None, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Show what analyses of large inputs keep, and where. The next analysis of the same files takes
    it in place of reading them. TRACECONV_CACHE names another folder, or is "off"; --no-cache of an
    analysis neither takes nor keeps anything.

    \b
    traceconv cache
    traceconv cache --clear
    traceconv cache --limit 4G
    """
    from traceconv.store import cache as kept

    if most is not None:
        kept.set_limit(most)
    if clear:
        kept.shrink(0)
    found = kept.contents()
    if as_json:
        of = {"folder": found.folder, "files": found.files}
        say.document({"schema_version": 1, **of, "bytes": found.bytes, "limit": found.limit})
    elif not found.folder:
        say.data("nothing is kept: TRACECONV_CACHE is off")
    elif not quiet:
        files, bytes_ = say.number(found.files, "file"), say.size(found.bytes)
        say.data(f"{found.folder}: {files}, {bytes_} of at most {say.size(found.limit)}")
