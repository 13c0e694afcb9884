"""Protobuf messages for tests, from the descriptor sets of ``schemas/proto`` (``make proto``).

The package itself decodes and encodes protobuf without a runtime.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _pool(stem: str) -> Any:
    from google.protobuf import (  # type: ignore[import-untyped, unused-ignore]
        descriptor_pb2,
        descriptor_pool,
    )

    raw = files(__name__).joinpath(f"{stem}.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@cache
def message(stem: str, name: str) -> Any:
    """The class of a message.

    Args:
        stem: of the file in ``schemas/proto`` ("perfetto_trace").
        name: full name with its package ("perfetto.protos.Trace").

    Raises:
        KeyError: the file holds no such message.
    """
    from google.protobuf import message_factory  # type: ignore[import-untyped, unused-ignore]

    return message_factory.GetMessageClass(_pool(stem).FindMessageTypeByName(name))
