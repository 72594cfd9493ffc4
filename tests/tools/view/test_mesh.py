"""The mesh of the viewer: the tiles that devices have, and the groups in which they communicate."""

import json
import subprocess

import pytest
from tools.view.test_model import MODEL, NODE

from xlakit.ir.instruction import HloModule
from xlakit.tools.view.mesh import mesh_of
from xlakit.tools.view.stages import document_of

_MESHES = r'{xla.sdy.meshes="{mesh = #sdy.mesh<[\"a\"=2, \"b\"=2]>}"}'
_ROWS = "sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}"
SHARDED = f"""HloModule sharded, num_partitions=4, frontend_attributes={_MESHES}

ENTRY main {{
  x = f32[8,6] parameter(0), {_ROWS}
  w = f32[6,4] parameter(1), sharding={{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}}
  ROOT d = f32[8,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {_ROWS}
}}
"""


def collectives(line, header):
    text = f"HloModule m, {header}\nadd {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}\n"
    text += f"ENTRY main {{ x = f32[2] parameter(0) ROOT r = f32[2] {line} }}"
    return mesh_of([HloModule.from_text(text)])["collectives"]["r"]


def test_a_program_of_one_device_has_no_mesh():
    assert mesh_of([HloModule.from_text("ENTRY main { ROOT x = f32[] parameter(0) }")]) is None


def test_devices_have_the_tiles_of_the_shardings():
    mesh = mesh_of([HloModule.from_text(SHARDED)])
    assert mesh["axes"] == [("a", 2), ("b", 2)]
    assert mesh["devices"] == [0, 1, 2, 3]
    ((shape, number),) = mesh["values"]["x"]
    assert shape == "f32[8,6]"
    assert mesh["shardings"][number] == ((0, 0, 1, 1), None)
    assert mesh["values"]["d"] == [("f32[8,4]", number)]
    assert mesh["shardings"][mesh["values"]["w"][0][1]] == ((0, 1, 0, 1), None)


def test_a_program_with_shardings_is_shown_before_and_after_it_is_split():
    document = document_of(HloModule.from_text(SHARDED)).as_dict()
    assert [own["name"] for own in document["steps"][:3]] == ["input", "partition", "control-dependencies"]
    assert [own["groups"] for own in document["mesh"]["collectives"].values()] == [[(0, 1), (2, 3)]]
    json.dumps(document)


@pytest.mark.parametrize(
    ("line", "header", "groups"),
    [
        ("all-reduce(x), replica_groups={{0,1}}, to_apply=add", "replica_count=2, num_partitions=2", [(0, 2), (1, 3)]),
        ("all-reduce(x), channel_id=1, to_apply=add", "replica_count=2, num_partitions=2", [(0, 1, 2, 3)]),
        (
            "all-reduce(x), channel_id=1, replica_groups={{0,3},{1,2}}, use_global_device_ids=true, to_apply=add",
            "num_partitions=4",
            [(0, 3), (1, 2)],
        ),
        ("all-reduce(x), replica_groups={{0,5}}, to_apply=add", "replica_count=2", []),
    ],
)
def test_groups_are_of_devices(line, header, groups):
    assert collectives(line, header) == {"groups": groups, "pairs": []}


def test_pairs_are_of_devices():
    line = "collective-permute(x), source_target_pairs={{0,1},{1,0}}"
    assert collectives(line, "replica_count=2, num_partitions=2")["pairs"] == [(0, 2), (2, 0), (1, 3), (3, 1)]
    found = collectives(f"{line}, channel_id=1", "replica_count=2, num_partitions=2")
    assert found["pairs"] == [(0, 1), (1, 0), (2, 3), (3, 2)]
    assert collectives(line, "num_partitions=2, replica_count=1") == {"groups": [], "pairs": []}


@pytest.mark.skipif(NODE is None, reason="no node to run JavaScript with")
def test_what_is_drawn():
    mesh = mesh_of([HloModule.from_text(SHARDED)])
    path = json.dumps(str(MODEL.parent / "mesh.js"))
    script = (
        f"const Mesh = require({path}); const mesh = {json.dumps(mesh)};"
        "process.stdout.write(JSON.stringify([Mesh.grid(mesh), Mesh.labels(mesh, 2), Mesh.groupsOf(mesh, 'w'),"
        " Mesh.partsOf(mesh.shardings[0]), Mesh.groupsOf(mesh, 'none') ?? null]));"
    )
    done = subprocess.run([NODE, "-e", script], capture_output=True, text=True, check=True)
    rows, labels, own, parts, none = json.loads(done.stdout)
    assert rows == [[0, 1], [2, 3]]
    assert labels == ["a 0", "a 1"]
    assert own == {"group": [0, 1, 0, 1], "texts": ["[0, *]", "[1, *]", "[0, *]", "[1, *]"], "pairs": []}
    assert parts == "2\u00d71"
    assert none is None
