"""Raw event logs: our schema; columns of the exports that are known by their header."""

from tests.census import COUNTED, LEFT, READ, Inventory
from traceconv.readers.event_log.find import PRESETS
from traceconv.readers.event_log.mapping import TARGETS, bound
from traceconv.readers.event_log.rows import PHASES, UNSTATED

_SCHEMA = "schemas/json/raw_event_log.schema.json"
_NSYS = "Nsight Systems, reports/cuda_gpu_trace.py, cuda_api_trace.py, nvtx_pushpop_trace.py"

COLUMNS = {
    "nsys-gpu": (
        _NSYS,
        "2026-02",
        "Start (ns)|Duration (ns)|CorrId|GrdX|GrdY|GrdZ|BlkX|BlkY|BlkZ|Reg/Trd|StcSMem (MB)|"
        "DymSMem (MB)|Bytes (MB)|Throughput (MB/s)|SrcMemKd|DstMemKd|Device|Ctx|GreenCtx|Strm|Name",
    ),
    "nsys-api": (
        _NSYS,
        "2026-02",
        "Start (ns)|Duration (ns)|Name|Result|CorrID|Pid|Tid|T-Pri|Thread Name",
    ),
    "nsys-nvtx": (
        _NSYS,
        "2026-02",
        "Start (ns)|End (ns)|Duration (ns)|DurChild (ns)|DurNonChild (ns)|Name|PID|TID|Lvl|"
        "NumChild|RangeId|ParentId|RangeStack|NameTree",
    ),
    "nvprof-gpu": (
        "nvprof --print-gpu-trace --csv, CUDA 11.8",
        "2022-10",
        "Start|Duration|Grid X|Grid Y|Grid Z|Block X|Block Y|Block Z|Registers Per Thread|"
        "Static SMem|Dynamic SMem|Size|Throughput|SrcMemType|DstMemType|Device|Context|Stream|Name",
    ),
}

FIELDS = """
name ts dur end ph rank graph step kind stream thread plane device process title value bytes args
"""

WORDS = """
range mark counter begin end x complete i instant c b enter start e leave exit stop
"""


def _columns(preset: str) -> Inventory:
    source, date, names = COLUMNS[preset]
    columns = tuple(names.split("|"))
    binding, missing = bound(PRESETS[preset], columns)
    assert not missing
    return Inventory(
        "event_log",
        f"columns of {preset}",
        source,
        date,
        columns,
        lambda name: LEFT if name in binding.ignored else READ,
    )


INVENTORIES = (
    Inventory(
        "event_log",
        "fields of a record",
        _SCHEMA,
        "2026-11",
        tuple(FIELDS.split()),
        lambda name: READ if name in TARGETS else COUNTED,
        TARGETS,
    ),
    Inventory(
        "event_log",
        "phases",
        f"{_SCHEMA}, and words of other logs",
        "2026-11",
        tuple(WORDS.split()),
        lambda name: READ if PHASES.get(name, UNSTATED) != UNSTATED else COUNTED,
        set(PHASES) - {""},
    ),
    *map(_columns, COLUMNS),
)
