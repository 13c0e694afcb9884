"""``traceconv cache``: the summaries that analyses keep."""

from __future__ import annotations

import click

from traceconv.cli import options, say
from traceconv.options import values


@click.command(cls=options.Command, short_help="Show, limit or clear the cache of analyses.")
@options.option(
    "--clear", is_flag=True, section="Output", usual=True, help="Remove all kept files."
)
@options.option(
    "--limit",
    "most",
    metavar="SIZE",
    section="Output",
    usual=True,
    callback=options.parsed(values.size),
    help="Size of the cache at most, in units of 1024, from now on.  [default: 1G]",
)
@options.as_json
@options.chatter
def cache(clear: bool, most: int | None, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Show where analyses keep summaries of ranks and answers, and the size. The next analysis of
    the same files uses these summaries and reads no capture; the same call prints its answer again.
    TRACECONV_CACHE names another folder, or is "off"; with --no-cache an analysis does not use the
    cache.

    \b
    traceconv cache
    traceconv cache --clear
    traceconv cache --limit 4G
    """
    from traceconv.store import cache as summaries

    if most is not None:
        summaries.set_limit(most)
    if clear:
        summaries.shrink(0)
    contents = summaries.contents()
    if as_json:
        place = {"folder": contents.folder, "files": contents.files}
        say.document(
            {"schema_version": 1, **place, "bytes": contents.bytes, "limit": contents.limit}
        )
    elif not contents.folder:
        say.data("the cache is off (TRACECONV_CACHE)")
    elif not quiet:
        files, bytes_ = say.number(contents.files, "file"), say.size(contents.bytes)
        say.data(f"{contents.folder}: {files}, {bytes_} of at most {say.size(contents.limit)}")
