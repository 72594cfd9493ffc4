"""Which names of jaxlib 0.6.0's xla_client, its modules and its classes there are, and why some are not."""

import json
from pathlib import Path

import pytest

from xlakit.compat import xla_client

NAMES = json.loads((Path(__file__).parent / "names_060.json").read_text())

OF_PYTHON = "a module or a type that jaxlib's file imports for itself"
PRIVATE = "a table or a function that jaxlib's file keeps for itself"
OF_JAX = (
    "a part of JAX's own dispatch: it calls functions of JAX's Python for what it has not seen, and makes JAX's objects"
)
OF_PROCESSES = "several processes are joined by xlakit.distributed, over MPI"
OF_PLUGINS = "xlakit loads no plugins of other platforms"
OF_SHARDY = "passes over Shardy's MLIR, which JAX's lowering calls"
WITHOUT_STATE = "unpickled by a constructor, without __setstate__"
# By the path of a module or class; what is in a missing one is missing, too.
MISSING = {
    "xla_client": {
        **dict.fromkeys(
            ["Any", "Mapping", "Protocol", "Sequence", "Union", "atexit", "contextlib", "enum", "gzip", "inspect",
             "np", "os", "threading"],
            OF_PYTHON,
        ),
        **dict.fromkeys(
            ["_NameValueMapping", "_custom_callback", "_custom_callback_handler", "_custom_callback_lock",
             "_custom_type_id", "_custom_type_id_handler", "_custom_type_id_lock", "_make_replica_group_proto"],
            PRIVATE,
        ),
    },
    "xla_client._xla": {
        **dict.fromkeys(
            ["PjitFunction", "PjitFunctionCache", "PmapFunction", "ResultHandler", "pjit", "pmap_lib"],
            OF_JAX,
        ),
        "sdy": OF_SHARDY,
        **dict.fromkeys(
            ["CpuCollectives", "DistributedRuntimeClient", "DistributedRuntimeService", "MpiCollectives",
             "PreemptionSyncManager", "TransferConnection", "TransferServer", "create_preemption_sync_manager",
             "get_distributed_runtime_client", "get_distributed_runtime_service", "ifrt_proxy",
             "make_gloo_tcp_collectives", "make_mpi_collectives", "start_transfer_server"],
            OF_PROCESSES,
        ),
        **dict.fromkeys(
            ["get_c_api_client", "get_c_api_topology", "get_default_c_api_topology", "load_pjrt_plugin"], OF_PLUGINS
        ),
    },
    "xla_client.DeviceList": {"__setstate__": WITHOUT_STATE},
    "xla_client.Layout": {"__setstate__": WITHOUT_STATE},
    "xla_client.PjRtLayout": {"__setstate__": WITHOUT_STATE},
    "xla_client._xla.pytree.PyTreeDef": {
        "make_from_node_data_and_children": "pytree is that of the jaxlib that is installed, which has it no longer",
    },
    "xla_client.profiler.ProfilerSession": {
        "stop_and_get_profile_data": "raises TypeError in jaxlib 0.6.0: its result has no type in Python",
    },
}  # fmt: skip
# The modules and classes that are missing.
GONE = tuple(f"{path}.{name}" for path, names in MISSING.items() for name in names)


def is_gone(path):
    return any(path == gone or path.startswith(f"{gone}.") for gone in GONE)


@pytest.mark.parametrize("path", [path for path in NAMES if not is_gone(path)])
def test_what_is_missing_is_known(path):
    if ".pytree" in path:
        pytest.importorskip("jaxlib")
    found = xla_client
    for part in path.split(".")[1:]:
        found = getattr(found, part)
    missing = {name for name in NAMES[path] if not hasattr(found, name)}
    assert missing == set(MISSING.get(path, {}))


def test_reasons_are_for_what_jaxlib_has():
    for path, names in MISSING.items():
        assert set(names) <= set(NAMES[path])
