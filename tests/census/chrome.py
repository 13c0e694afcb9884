"""Trace-event JSON: phases and fields of an event."""

from tests.census import COUNTED, READ, Inventory
from traceconv.readers.shared.trace_events.event_records import Event
from traceconv.readers.shared.trace_events.tables import PHASES, STATE

_FIELDS = frozenset((*Event.__struct_fields__, "s", "flow_in", "flow_out"))
"""The last two are read where an event has a bind_id."""

_FORMAT = (
    "the Trace Event Format document; Perfetto, src/trace_processor/importers/json "
    "(`json_trace_parser_impl.cc`)"
)
_DATE = "2026-08"

FIELDS = """
ph cat name pid tid ts dur tts tdur args id id2 scope s bp bind_id flow_in flow_out cname sf stack
esf estack bt ebt tidelta ticount
"""

INVENTORIES = (
    Inventory(
        "chrome_json",
        "phases",
        _FORMAT,
        _DATE,
        tuple("BEXiICbneSTpFstfPNODMVvRc()"),
        lambda name: READ if name in PHASES else COUNTED,
        set(PHASES) - {STATE},
    ),
    Inventory(
        "chrome_json",
        "fields of an event",
        f"{_FORMAT}; fields that are counted stay in byte copies and conversions to JSON",
        _DATE,
        tuple(FIELDS.split()),
        lambda name: READ if name in _FIELDS else COUNTED,
    ),
)
