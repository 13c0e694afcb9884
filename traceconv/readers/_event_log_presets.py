"""The logs that are known without a mapping: our own schema, and exports of other profilers.

Every preset is written as a user would write it. Which one a log needs is seen by its header.
"""

from __future__ import annotations

from traceconv.errors import InputError
from traceconv.readers._event_log_mapping import TARGETS, Field, Mapping, from_file, parsed

SCHEMA = Mapping(
    "raw event log",
    tuple(Field(t, t, optional=t not in ("name", "ts")) for t in TARGETS),
)
"""Version 1 of our own schema: every field under its own name."""

_TEXTS = {
    # nsys stats -r cuda_gpu_trace (gputrace)
    "nsys-gpu": (
        r"ts=Start (*),dur=Duration (*),name=Name,stream=Strm,device?=Device/\((\d+)\)/,"
        "args.correlation?=CorrId,args.context?=Ctx,title='GPU Hardware',clock='relative'"
    ),
    # nsys stats -r cuda_api_trace
    "nsys-api": (
        "ts=Start (*),dur=Duration (*),name=Name,thread=Tid,process=Pid,args.correlation=CorrID,"
        "args.result?=Result,ignore=T-Pri,ignore=Thread Name,kind='runtime',title='CUDA',"
        "clock='relative'"
    ),
    # nsys stats -r nvtx_pushpop_trace; what is derived from start and end is left out
    "nsys-nvtx": (
        "ts=Start (*),end=End (*),name=Name/^:?(.*)$/,thread=TID,process=PID,"
        "args.range=RangeId,kind='host',title='NVTX',clock='relative',ignore=Duration (*),"
        "ignore=DurChild (*),ignore=DurNonChild (*),ignore=Lvl,ignore=NumChild,ignore=ParentId,"
        "ignore=RangeStack,ignore=NameTree"
    ),
    # nvprof --print-gpu-trace --csv
    "nvprof-gpu": (
        r"ts=Start,dur=Duration,name=Name/^(.*?)(?: \[\d+\])?$/,stream=Stream,"
        r"device?=Device/\((\d+)\)/,args.context=Context,title='GPU Hardware',unit='row',"
        "comment='==',clock='relative'"
    ),
    # one row when a call is entered and one when it is left; what is derived of them is left out
    "enter-leave": (
        "ts=Timestamp (*),ph=Event Type,name=Name,rank?=Process,thread?=Thread,stream?=streamId,"
        "bytes?=bytes,kind?=type/^(kernel|memcpy|memset|CUDA_MEMCPY|CUDA_MEMSET)/,"
        "ignore=_matching_event,ignore=_matching_timestamp,ignore=_depth,ignore=_parent,"
        "ignore=_children"
    ),
}
PRESETS: dict[str, Mapping] = {name: parsed(text, name) for name, text in _TEXTS.items()}
"""By name, in the order they are tried."""


def mapping_of(text_or_path: str) -> Mapping:
    """The mapping a user asked for: a preset, a preset and changes to it, a file, or a text.

    Raises:
        InputError: it cannot be understood, or leaves out ``ts`` or ``name``.
    """
    head, comma, rest = text_or_path.strip().partition(",")
    if head == "chrome-jsonl":
        raise InputError(
            "--map chrome-jsonl: lines of Chrome events need no mapping; leave --map out, or say "
            "--from chrome_json"
        )
    if head in PRESETS:
        mapping = parsed(rest, f"--map {head}").over(PRESETS[head]) if comma else PRESETS[head]
    elif "=" in text_or_path:
        mapping = parsed(text_or_path)
    elif text_or_path.endswith(".json"):
        mapping = from_file(text_or_path, PRESETS)
    else:
        raise InputError(
            f"--map {text_or_path}: neither a preset ({', '.join(PRESETS)}), nor a .json file, nor "
            "a mapping such as name=Name,ts=Start"
        )
    lacking = {"ts", "name"} - {f.target for f in mapping.fields}
    if lacking:
        raise InputError(f"{mapping.name}: says nothing of {' and '.join(sorted(lacking))}")
    return mapping
