"""Tables by opcode: a name that is no operation's is never looked up, so nothing else would tell."""

import sys

import xlakit.cpu.compile
import xlakit.ir.verifier
import xlakit.passes.pipeline  # noqa: F401 - these load all tables
from xlakit.ops.registry import OPERATIONS


def test_tables_by_opcode_name_operations():
    unknown = {}
    tables = 0
    for name, module in sorted(sys.modules.items()):
        # Elementary functions have names of their own.
        if not name.startswith("xlakit.") or name.startswith("xlakit.cpu.math"):
            continue
        for variable, table in vars(module).items():
            if not isinstance(table, (frozenset, dict)) or not all(isinstance(key, str) for key in table):
                continue
            strange = [key for key in table if key not in OPERATIONS]
            if len(strange) * 2 < len(table):
                tables += 1
                if strange:
                    unknown[f"{name}.{variable}"] = strange
    assert tables > 40
    assert not unknown
