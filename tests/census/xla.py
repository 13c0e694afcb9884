"""XLA: planes, lines and stats of an XSpace; opcodes of HLO."""

from tests.census import COUNTED, DESCRIBES, READ, UNCLASSIFIED, Inventory
from traceconv.core.model import OpClass
from traceconv.readers.xla.operations import operation
from traceconv.readers.xla.plane_rows import HIDDEN, LINKS
from traceconv.readers.xla.planes import Kind, kind_of

_SCHEMA = "openxla/xla, xla/tsl/profiler/utils/xplane_schema.cc"
_DATE = "2026-08"

PLANES = (
    "/host:CPU", "/host:python-tracer", "/host:CUPTI", "/host:NVTX-CUPTI", "/host:ROCTRACER",
    "/host:TPU-runtime", "/host:tfstreamz", "/host:metadata", "/host:__ScopeRangeCallStack__",
    "Task Environment", "Host CPUs", "Syscalls", "/device:GPU:0", "/device:TPU:0",
    "/device:TPU:0 SparseCore 0", "/device:CUSTOM:Megascale Trace", "/device:CUSTOM:MOSAIC:0",
    "/virtualdevice:0", "#Chip TPU 0#",
)  # fmt: skip

LINES = (
    "Steps", "Sparse Core Steps", "Sparse Core Modules", "Sparse Core Ops", "Framework Name Scope",
    "Framework Ops", "XLA Modules", "XLA Ops", "Async XLA Ops", "Launch Stats", "Source code",
    "Host Offload Ops", "_counters_", "Tensor Core Sync Flag", "Sparse Core Syncs", "XLA TraceMe",
    "Stream #7(Kernel)", "DcnHostTraffic", "DcnCollectiveTraffic",
)  # fmt: skip

STATS = """
id device_ordinal chip_ordinal node_ordinal model_id queue_addr queue_id request_id run_id
global_chip_id replica_id graph_type step_num iter_num index_on_host allocator_name bytes_reserved
bytes_allocated bytes_available fragmentation peak_bytes_in_use requested_bytes allocation_bytes
addr region_type data_type shape layout kpi_name kpi_value element_id parent_id core_type
_ipl_stage_id _ipl_stage_name _ipl_stage_cat _pt _ct _p _c _pid process_id _r _a device_id
device_type_string context_id correlation_id memcpy_details memalloc_details MemFree_details
Memset_details MemoryResidency_details kernel_details nvtx_range stream group_id flow step_name
tf_op hlo_op deduplicated_name hlo_category hlo_module program_id equation is_eager is_func
tf_function_call tracing_count flops model_flops bytes_accessed raw_bytes_accessed
memory_access_breakdown shape_with_layout source model_name model_version bytes_transferred queue
dcn_collective_info all_reduce_id all_reduce_unique_id matrix_unit_utilization_percent
hbm_utilization_percent performance_counter_id counter_value performance_counter_description
performance_counter_sets clock_rate core_count memory_bandwidth memory_size compute_cap_major
compute_cap_minor peak_teraflops_per_second peak_hbm_bw_gigabytes_per_second device_vendor
has_megacore has_merged_vmem batch_size_after_padding padding_amount batching_input_task_size
theoretical_occupancy_pct occupancy_min_grid_size occupancy_suggested_block_size self_duration_ps
min_duration_ps total_profile_duration_ps max_iteration_num device_type uses_megacore symbol_id
tf_op_name dma_stall_duration_ps key payload_size_bytes duration_us buffer_size transfers dcn_label
dcn_source_slice_id dcn_source_per_slice_device_id dcn_destination_slice_id
dcn_destination_per_slice_device_id dcn_chunk dcn_loop_index dropped_traces nan_counter_events
cuda_graph_id cuda_graph_exec_id cuda_graph_orig_id step_idle_time_ps gpu_device_name source_stack
device_offset_ps device_duration_ps scope_range_id core_details mlir_program cuda_graph_node_id
cuda_orig_graph_id cuda_graph_orig_node_id cuda_graph_map_id cuda_graph_map_value_id
cuda_graph_node_map_id graph_metadata_line_id offload_core_id tc_offload_start_id
offload_execution_index marker_payload cuda_version libtpu_version cuda_runtime_version
cuda_driver_version vdd_core_energy_nj vdd_core_power_events hbm_energy_nj hbm_power_events
transaction_with_chip_core_id program_counter profile_start_time profile_stop_time profile_options
peak_cmem_rd_bw_gigabytes_per_second peak_cmem_wr_bw_gigabytes_per_second
peak_vmem_rd_bw_gigabytes_per_second peak_vmem_wr_bw_gigabytes_per_second
peak_sram_rd_bw_gigabytes_per_second peak_sram_wr_bw_gigabytes_per_second
graph_key local_device_id num_actions collective_type input_size send_channel_id recv_channel_id
slack_us action_type start_end_type action_index action_duration_ns action_inputs transfer_source
transfer_destinations dcn_topology_level buffer_sizes compute_operation chunk launch_id
loop_iteration transmission_budget_us delay_budget_us network_transport_latency_us
activation_to_network_receive_duration_us multi_slice_topology
"""
SPACED_STATS = ("Raw Value", "Scaled Value", "Thread Id", "Time Scale Multiplier")
"""Stats with a number or a text; they become arguments, flows, steps or facts of the device."""

BYTES = ("Hlo Proto", "EdgeTPU Model information", "EdgeTPU Model Profile information",
         "EdgeTPU MLIR", "llo_proto", "graph_protos")  # fmt: skip

OPCODES = """
abs acos acosh add add-dependency after-all all-gather all-gather-done all-gather-start all-reduce
all-reduce-done all-reduce-start all-to-all and asin asinh async-done async-start async-update atan
atan2 atanh batch-norm-grad batch-norm-inference batch-norm-training bitcast bitcast-convert
broadcast call cbrt ceil cholesky clamp collective-broadcast collective-permute
collective-permute-done collective-permute-start collective-reduce compare complex concatenate
conditional constant convert convolution copy copy-done copy-start cosh cosine count-leading-zeros
custom-call divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf exponential
exponential-minus-one fft floor fusion gather get-dimension-size get-tuple-element imag infeed iota
is-finite log log-plus-one logistic map maximum minimum mulhi multiply negate not opt-barrier or
outfeed pad parameter partition-id popcnt power ragged-all-to-all ragged-dot real recv recv-done
reduce reduce-precision reduce-scatter reduce-window remainder replica-id reshape reverse rng
rng-bit-generator rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot
scan scatter select select-and-scatter send send-done set-dimension-size shift-left
shift-right-arithmetic shift-right-logical shuffle sign sine sinh slice sort sqrt stochastic-convert
subtract tan tanh topk transpose triangular-solve tuple while xor
"""

INVENTORIES = (
    Inventory(
        "xplane",
        "planes",
        _SCHEMA,
        _DATE,
        PLANES,
        lambda name: DESCRIBES if kind_of(name) is Kind.NOTES else READ,
    ),
    Inventory(
        "xplane",
        "lines of devices",
        f"{_SCHEMA}; a line of no known kind is shown and in no figure",
        _DATE,
        LINES,
        lambda _: READ,
    ),
    Inventory(
        "xplane",
        "stats",
        _SCHEMA,
        _DATE,
        (*STATS.split(), *SPACED_STATS),
        lambda name: COUNTED if name in HIDDEN else READ,
        (HIDDEN | LINKS) - {"_src"},
    ),
    Inventory(
        "xplane",
        "stats that are bytes",
        _SCHEMA,
        _DATE,
        BYTES,
        lambda name: READ if name == "Hlo Proto" else COUNTED,
    ),
    Inventory(
        "xplane",
        "opcodes of HLO",
        "openxla/xla, xla/hlo/ir/hlo_opcode.h",
        _DATE,
        tuple(OPCODES.split()),
        lambda name: UNCLASSIFIED if operation("", name, "").op is OpClass.UNCLASSIFIED else READ,
    ),
)
