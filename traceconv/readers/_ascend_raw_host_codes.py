"""What the numbers in records of the collector's host side stand for."""

from __future__ import annotations

UNITS = {
    0: "AI_CORE", 1: "AI_CPU", 2: "AI_VECTOR_CORE", 3: "WRITE_BACK", 4: "MIX_AIC", 5: "MIX_AIV",
    6: "FFTS_PLUS", 7: "DSA_SQE", 8: "DVPP", 9: "COMMUNICATION", 10: "INVALID", 11: "HCCL_AI_CPU",
}  # fmt: skip
"""What carries out an operator, as ``node_basic_info`` says."""

_UNSAID = {255: "RESERVED", 4294967295: "INVALID_TYPE"}

DATA_TYPES = {
    0: "INT8", 1: "INT16", 2: "INT32", 3: "FP16", 4: "FP32", 5: "INT64", 6: "UINT64", 7: "UINT8",
    8: "UINT16", 9: "UINT32", 10: "FP64", 11: "BFP16", 12: "INT128", **_UNSAID,
}  # fmt: skip
"""Of the elements a communication moves."""

LINKS = {
    0: "ON_CHIP", 1: "HCCS", 2: "PCIE", 3: "ROCE", 4: "SIO", 5: "HCCS_SW", 6: "STANDARD_ROCE",
    **_UNSAID,
}  # fmt: skip
TRANSPORTS = {0: "SDMA", 1: "RDMA", 2: "LOCAL", **_UNSAID}
RDMA = {0: "RDMA_SEND_NOTIFY", 1: "RDMA_SEND_PAYLOAD", **_UNSAID}

COPY_DIRECTIONS = {
    0: "host to host", 1: "host to device", 2: "device to host", 3: "device to device",
    4: "managed memory", 5: "addr device to device", 6: "host to device ex",
    7: "device to host ex",
}  # fmt: skip
