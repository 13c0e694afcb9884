"""Protobuf: messages read field by field and as columns, and the fields of Perfetto's messages."""
