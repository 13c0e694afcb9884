"""Trace-event JSON as columns: :func:`.timeline.read_events` is what readers call.

Steps of reading, by module:

===================  ================================================================
``contract``         what a reader is asked (lanes) and answers (places)
``timeline``         entry; drives a tier over the file, and salvage where it stops
``keys``             around the events: where their list begins, other members
``native``           the C tier: the scanner's columns, with the codes of the tables
``event_records``    one event decoded, exact times
``intake``           the Python tier: decoded events into columns, one by one
``salvage``          record by record, where a file is damaged or a tier stops
``tables``           the columns both tiers fill, their codes, counts of what was lost
``placing``          metadata and the reader's answers: lanes to tracks, rows on them
``arrows``           ends of flows joined, bound to slices, drawn
``assemble``         all of it into the builder: pairs, counters, flows, rows
===================  ================================================================

Both tiers give the same tables; ``TRACECONV_NATIVE=0`` in the environment forbids the C tier.
"""
