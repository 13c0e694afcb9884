"""``python -m tests.mcp_questions``: 30 questions with known answers, asked through the MCP tools.

The right values are those of the READMEs and files of truth in ``../shared/data``; none comes
from traceconv. Each question is a call of one tool by a client of the protocol, and right if the
figure is in the answer, where an agent would look for it. ``--transcripts`` prints the calls and
answers of three investigations.
"""

import argparse
import json
import sys
from pathlib import Path

import anyio
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from traceconv.mcp.answers import MOST_TOKENS, tokens

DATA = Path(__file__).parents[1].parent / "shared" / "data"
SLOW, STAGES = "jobs/slow_worker", "jobs/stage_imbalance"
HTA = "gpu/kineto/hta_nccl_data_rank0of2.json.gz"
AFTER, CLOVER = "gpu/nsys/mfu_2gpu_after.sqlite", "gpu/nsys/perlmutter-cloverleaf-cuda.sqlite"
SAXPY = "gpu/nsys/saxpy-mpi-cuda_nsys_perlmutter0.sqlite"
ASCEND = "ascend/msinsight"


def near(found, right, share=0.0):
    """Whether a figure is the right one, within a share of it."""
    return found is not None and abs(found - right) <= share * abs(right)


def column(answer, heading, **where):
    """The cells of a column, of the rows of one rank that hold some values."""
    names = [name.partition(" (")[0] for name in answer["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in answer["rows"]]
    rows = [
        row for row in rows if row.get("Rank", 0) is not None and row.get("Step", 0) is not None
    ]
    return [row[heading] for row in rows if all(str(v) in str(row[k]) for k, v in where.items())]


def captures(answer, heading):
    """A column of the captures that inspect lists."""
    return column(answer["captures"], heading)


QUESTIONS = (
    # jobs: README and expect.json
    ("Which rank slows down the job slow_worker?", "stragglers", {"path": SLOW},
     lambda a: a["culprit"]["rank"] == 0),
    ("What does that rank take longer for?", "stragglers", {"path": SLOW},
     lambda a: a["culprit"]["cause"] == "computing"),
    ("How many times as long as ideal is a step?", "stragglers", {"path": SLOW},
     lambda a: near(a["replay"]["slowdown"], 1.9477, 0.03)),
    ("... and if only replica 0 stays slow?", "stragglers", {"path": SLOW},
     lambda a: near(a["slowdown_if_only_these_stay_slow"]["dp"]["0"], 1.9477, 0.05)),
    ("... and if only backward computing stays slow?", "stragglers", {"path": SLOW},
     lambda a: near(a["slowdown_if_only_these_stay_slow"]["operation"]["backward_gemm"], 1.5568,
                    0.05)),
    ("Which steps were recorded?", "table", {"path": SLOW, "name": "step", "ranks": "0"},
     lambda a: column(a, "Step") == [16, 21, 27, 29, 34, 35]),
    ("What share of a step would rank 0 at the speed of its peers save?", "what_if",
     {"path": SLOW, "changes": ["rank:0=peers"]},
     lambda a: near(a["gain_share"], 1 - 1 / 1.9477, 0.05)),
    ("How many stages and replicas has the job?", "inspect", {"path": SLOW},
     lambda a: {one.rpartition(" (")[0] for one in a["axes"]} == {"dp 4", "pp 4"}),
    ("Which stage of stage_imbalance has more work?", "stragglers", {"path": STAGES},
     lambda a: a["stage"]["stage"] == 3 and a["stage"]["ranks"] == [6, 7]),
    ("How many times as long as ideal is its step?", "stragglers", {"path": STAGES},
     lambda a: near(a["replay"]["slowdown"], 1.1814, 0.03)),
    ("How long is its mean step?", "stragglers", {"path": STAGES},
     lambda a: near(a["replay"]["step_ns"], 2_219_705_000, 0.03)),
    # gpu: README
    ("Which steps are in the NCCL sample of HTA?", "table", {"path": HTA, "name": "step"},
     lambda a: column(a, "Step") == [4, 5, 6]),
    ("How many NCCL kernels are in it?", "table",
     {"path": HTA, "name": "kernel", "filters": ["Kernel~nccl"]},
     lambda a: sum(column(a, "Count")) == 21),
    ("Which ranks of that job are missing?", "inspect", {"path": HTA},
     lambda a: a["world_size"] == 2 and a["missing_ranks"] == "1"),
    ("Which rank of how many is the file rank-34?", "inspect", {"path": "gpu/kineto/" + next(
        (p.name for p in (DATA / "gpu/kineto").glob("rank-34*")), "")},
     lambda a: captures(a, "rank") == [34] and a["world_size"] == 300),
    ("How long do the SendRecv kernels of mfu_2gpu_after take, and how many are there?", "table",
     {"path": AFTER, "name": "kernel", "filters": ["Kernel~SendRecv"]},
     lambda a: (sum(column(a, "Count", Kernel="SendRecv")),
                sum(column(a, "Total Time", Kernel="SendRecv"))) == (62, 33_742_101)),
    ("How many bytes are copied on its devices?", "table",
     {"path": AFTER, "name": "copy", "filters": ["Copy~Device-to-Device"]},
     lambda a: sum(column(a, "Bytes")) == 7_195_376_640 and sum(column(a, "Count")) == 872),
    ("How many kernels are in the NCCL sample, and how long are they together?", "sql",
     {"path": HTA, "query": "select count(*) as n, sum(dur_ns) as ns from events "
      "where layer in ('device', 'comm') and op in ('compute', 'comm')"},
     lambda a: a["rows"] == [[2700, 162_532_340]]),
    ("How many bytes does CloverLeaf copy to the device?", "table",
     {"path": CLOVER, "name": "copy", "filters": ["Copy~Host-to-Device"]},
     lambda a: sum(column(a, "Bytes")) == 225_065_752 and sum(column(a, "Count")) == 254),
    ("How long do the kernels of saxpy take?", "table", {"path": SAXPY, "name": "kernel"},
     lambda a: sum(column(a, "Count")) == 5 and sum(column(a, "Total Time")) == 88_573_480),
    ("How long does the device compute in SGLang's decode pass?", "table",
     {"path": "gpu/inference/sglang_decode", "name": "overlap"},
     lambda a: near(column(a, "Total Compute")[0], 9_760_000, 0.001)),
    ("... and in vLLM's?", "table",
     {"path": "gpu/inference/vllm_decode_full", "name": "overlap"},
     lambda a: near(column(a, "Total Compute")[0], 10_675_000, 0.001)),
    ("How long are the steps of the first Paddle sample?", "table",
     {"path": "gpu/paddle/" + next(
         (p.name for p in (DATA / "gpu/paddle").glob("host_vmpid_32055*")), ""), "name": "step"},
     lambda a: column(a, "Duration") == [549_179, 528_989, 444_092]),
    # ascend: README
    ("How long does level0's rank 0 compute, and communicate without computing?", "table",
     {"path": ASCEND + "/" + next((str(p.parent.relative_to(DATA / ASCEND)) for p in sorted(
         (DATA / ASCEND).rglob("trace_view.json")) if "level0" in str(p)), ""),
      "name": "overlap"},
     lambda a: 8_827_473 in column(a, "Total Compute")
     and 81_515_607 in column(a, "Communication Not Overlapped")),
    # field: README
    ("Which rank is late where message sizes vary, and by how much?", "stragglers",
     {"path": "field/general/straggler_with_varying_sizes/vary"},
     lambda a: a["culprit"]["rank"] == 2 and near(a["culprit"]["excess_ns"], 3_000_000, 0.05)),
    ("What do the pauses of rank 0 in every fourth step cost?", "stragglers",
     {"path": "field/insight/gc_denied_rank_1pct_slower"},
     lambda a: a["culprit"]["rank"] == 0 and near(a["culprit"]["gain_ns"], 5_130_000, 0.1)),
    ("Which rank of the tensor-parallel pair is slow, and what does it cost?", "stragglers",
     {"path": "field/insight/tp_partner_blamed"},
     lambda a: a["culprit"]["rank"] == 3 and near(a["culprit"]["gain_ns"], 30_000_000, 0.1)),
    ("Where does the job of the flight recorder hang?", "stragglers",
     {"path": "field/gpu/flight_recorder_hang"},
     lambda a: "rank 2" in a["text"] and "7" in a["text"]),
    ("How long do ranks compute, at the profiler's level none?", "table",
     {"path": "field/ascend/level_none_mstx", "name": "step_trace_time"},
     lambda a: set(column(a, "Computing")) == {None}
     and set(column(a, "Communication")) == {250_000}),
    ("Can the two runs in one folder be merged?", "inspect",
     {"path": "field/general/two_runs_in_one_folder"},
     lambda a: bool(a.get("problem") or a.get("error") or a["issues"])),
)  # fmt: skip
"""(question, tool, arguments, whether an answer has the right figure)."""

TRANSCRIPTS = (
    ("Why are the steps of slow_worker slow?", (
        ("files", {"path": "jobs"}), ("findings", {"path": SLOW}), ("stragglers", {"path": SLOW}),
        ("what_if", {"path": SLOW, "changes": ["rank:0=peers"]}))),
    ("What does the decode pass of SGLang consist of?", (
        ("inspect", {"path": "gpu/inference/sglang_decode"}),
        ("table", {"path": "gpu/inference/sglang_decode", "name": "overlap"}),
        ("table", {"path": "gpu/inference/sglang_decode", "name": "kernel"}))),
    ("Did the change to mfu_2gpu help?", (
        ("compare", {"before": "gpu/nsys/mfu_2gpu_before.sqlite", "after": AFTER}),
        ("table", {"path": AFTER, "name": "kernel", "filters": ["Kernel~nccl"]}),
        ("explain", {"topic": "device-idle"}))),
)  # fmt: skip


async def main():
    parser = argparse.ArgumentParser(prog="python -m tests.mcp_questions", description=__doc__)
    parser.add_argument("--transcripts", action="store_true")
    asked = parser.parse_args()
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "traceconv", "mcp", str(DATA)]
    )
    async with stdio_client(program) as (reading, writing), ClientSession(reading, writing) as one:
        await one.initialize()
        if asked.transcripts:
            await _transcripts(one)
            return 0
        return await _questions(one)


async def _questions(session):
    right, sizes = 0, []
    for text, tool, arguments, is_right in QUESTIONS:
        said = (await session.call_tool(tool, arguments)).content[0].text
        sizes.append(tokens(said))
        try:
            good = bool(is_right(json.loads(said)))
        except (KeyError, TypeError, ValueError, IndexError):
            good = False
        right += good
        print(
            f"{'right' if good else 'WRONG':5}  {sizes[-1]:5} tokens  {len(said):5} bytes  {text}"
        )
        if not good:
            print(f"       {tool}({arguments}): {said[:600]}")
    print(f"{right} of {len(QUESTIONS)} right; at most {max(sizes)} tokens of {MOST_TOKENS}")
    return int(right < len(QUESTIONS) or max(sizes) > MOST_TOKENS)


async def _transcripts(session):
    for question, calls in TRANSCRIPTS:
        print(f"# {question}")
        for tool, arguments in calls:
            said = (await session.call_tool(tool, arguments)).content[0].text
            print(f"-> {tool}({json.dumps(arguments)})\n<- {said}\n")


if __name__ == "__main__":
    sys.exit(anyio.run(main))
