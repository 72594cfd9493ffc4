"""Shardings, meshes and device lists in HLO text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xlakit.errors import ShapeError
from xlakit.formats.hlo_text.lexer import Lexer
from xlakit.formats.hlo_text.metadata import parse_metadata, print_metadata
from xlakit.formats.hlo_text.shapes import list_of
from xlakit.ir.attributes import (
    AxisRef,
    IotaTileAssignment,
    Mesh,
    NamedSharding,
    OpMetadata,
    ReplicaGroups,
    Sharding,
)

_WORDS = ("replicated", "maximal", "manual", "unknown", "unreduced")
_SUBGROUPS = ("replicated", "maximal", "manual", "unreduced")
_REDUCTIONS = ("sum", "max", "min")


def parse_sharding(lexer: Lexer) -> Sharding:
    """One sharding in braces, or those of a tuple's leaves in braces. Raises ParseError."""
    if lexer.text != "{":
        raise lexer.expected("'{' before a sharding")
    if lexer.peek() in ("{", "}"):
        elements = list_of(lexer, "{", "}", _single, "between the shardings of a tuple")
        return Sharding("TUPLE", elements=tuple(elements))
    return _single(lexer)


def _single(lexer: Lexer) -> Sharding:
    start = lexer.start
    lexer.expect("{", "before a sharding")
    if lexer.text in ("mesh", "maximal_mesh"):
        return _named(lexer)
    fields: dict[str, object] = {}
    words: list[str] = []
    while lexer.text != "}":
        word = lexer.expect_name("a sharding")
        if word in _WORDS:
            words.append(word)
        elif word == "last_tile_dim_replicate":
            fields["replicate_on_last_tile_dim"] = True
        elif word in ("shard_as", "shard_like"):
            fields["shard_group"] = (
                word.removeprefix("shard_").upper(),
                lexer.expect_integer("a shard group's number"),
            )
        elif word in ("device", "devices", "last_tile_dims", "metadata"):
            lexer.expect("=", f"after '{word}'")
            _field(lexer, word, fields)
        else:
            known = (*_WORDS, "device=", "devices=", "last_tile_dim_replicate", "last_tile_dims=", "metadata=")
            raise lexer.error(f"unknown word '{word}' in a sharding", hint="known: " + ", ".join(known))
    lexer.advance()
    kind = words[0].upper() if words else "OTHER"
    if len(words) > 1:
        raise lexer.error(f"a sharding is either {words[0]} or {words[1]}", start)
    _check(lexer, start, kind, fields)
    return Sharding(kind, **fields)  # pyright: ignore


def _field(lexer: Lexer, word: str, fields: dict[str, object]) -> None:
    """Read what follows a word in a sharding's braces into the fields of OpSharding that it gives."""
    if word == "device":
        fields["devices"] = (lexer.expect_integer("a device number"),)
    elif word == "metadata":
        fields["metadata"] = _metadata_list(lexer)
    elif word == "last_tile_dims":
        fields["last_tile_dims"] = tuple(list_of(lexer, "{", "}", _subgroup, "in last_tile_dims"))
    else:
        dimensions, devices, iota = _tile_assignment(lexer)
        fields["tile_dimensions"] = dimensions
        fields["iota" if iota is not None else "devices"] = devices if iota is None else iota


def _subgroup(lexer: Lexer) -> str:
    word = lexer.text
    if word not in _SUBGROUPS:
        raise lexer.expected("one of " + ", ".join(_SUBGROUPS))
    lexer.advance()
    return word.upper()


def _check(lexer: Lexer, start: int, kind: str, fields: dict[str, object]) -> None:
    devices: Sequence[int] = fields.get("devices", ())  # pyright: ignore
    dimensions: Sequence[int] = fields.get("tile_dimensions", ())  # pyright: ignore
    if kind == "MAXIMAL":
        if len(devices) != 1 or dimensions:
            raise lexer.error("a maximal sharding has exactly one device: {maximal device=0}", start)
    elif kind != "OTHER":
        if devices or "iota" in fields:
            raise lexer.error(f"a {kind.lower()} sharding has no devices", start)
    elif not dimensions:
        raise lexer.error("a sharding needs devices=[tiles]devices, or a word such as replicated", start)
    elif "iota" not in fields:
        if len(devices) <= 1:
            raise lexer.error("a tiled sharding has more than one device", start)
        if math.prod(dimensions) != len(devices):
            raise lexer.error(f"{len(devices)} devices for {math.prod(dimensions)} tiles", start)


def _metadata_list(lexer: Lexer) -> tuple[OpMetadata, ...]:
    if lexer.text == "{" and lexer.peek() == "{":
        return tuple(list_of(lexer, "{", "}", parse_metadata, "between metadata"))
    return (parse_metadata(lexer),)


# -- tiles and iota ----------------------------------------------------------------------------------


def _tile_assignment(lexer: Lexer) -> tuple[tuple[int, ...], tuple[int, ...], IotaTileAssignment | None]:
    start = lexer.start
    dimensions = tuple(list_of(lexer, "[", "]", Lexer.expect_integer, "between tile counts"))
    if lexer.accept("<="):
        reshape, permutation = _iota(lexer)
        try:
            return dimensions, (), IotaTileAssignment(dimensions, reshape, permutation)
        except ShapeError as fault:
            raise lexer.error(fault.rule, start) from None
    devices = [lexer.expect_integer("a device number or '<='")]
    while lexer.accept(","):
        devices.append(lexer.expect_integer("a device number"))
    return dimensions, tuple(devices), None


def _iota(lexer: Lexer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """``[dims]`` or ``[dims]T(permutation)``."""
    reshape = tuple(list_of(lexer, "[", "]", Lexer.expect_integer, "between sizes"))
    if len(reshape) == 1 and lexer.text != "T":
        return reshape, (0,)
    lexer.expect("T", "before the permutation of an iota")
    return reshape, tuple(list_of(lexer, "(", ")", Lexer.expect_integer, "in a permutation"))


def _print_iota(iota: IotaTileAssignment) -> str:
    text = f"[{joined(iota.reshape_dims)}]"
    return text if len(iota.reshape_dims) == 1 else f"{text}T({joined(iota.transpose_perm)})"


def joined(numbers: Sequence[object]) -> str:
    """Numbers with commas between them."""
    return ",".join(map(str, numbers))


# -- meshes ------------------------------------------------------------------------------------------


def _mesh(lexer: Lexer) -> Mesh:
    start = lexer.start
    word = lexer.expect_name()
    if word == "maximal_mesh":
        lexer.expect("[")
        lexer.expect("device_id")
        lexer.expect("=")
        device = lexer.expect_integer("a device number")
        lexer.expect("]")
        return Mesh(device_ids=(device,))
    axes = tuple(list_of(lexer, "[", "]", _axis, "between mesh axes"))
    devices: tuple[int, ...] = ()
    iota = None
    if lexer.text == "," and lexer.peek() == "device_ids":
        lexer.advance()
        lexer.advance()
        lexer.expect("=")
        if lexer.peek() == "[":
            lexer.expect("(")
            reshape, permutation = _iota(lexer)
            lexer.expect(")")
            try:
                iota = IotaTileAssignment(tuple(size for _, size in axes), reshape, permutation)
            except ShapeError as fault:
                raise lexer.error(fault.rule, start) from None
        else:
            devices = tuple(list_of(lexer, "(", ")", Lexer.expect_integer, "between devices"))
            total = math.prod(size for _, size in axes)
            if len(devices) != total:
                raise lexer.error(f"a mesh of {total} devices lists {len(devices)}", start)
    return Mesh(axes, devices, iota)


def _axis(lexer: Lexer) -> tuple[str, int]:
    name = lexer.expect_string("an axis name in quotes")
    lexer.expect("=", "after an axis name")
    size = lexer.expect_integer("an axis size")
    if size < 1:
        raise lexer.error(f"axis '{name}' has size {size}")
    return name, size


def _axis_ref(lexer: Lexer, mesh: Mesh) -> AxisRef:
    start = lexer.start
    name = lexer.expect_string("an axis name in quotes")
    names = [axis for axis, _ in mesh.axes]
    if name in names:
        index = names.index(name)
    elif name.isdigit() and int(name) < len(names):
        index = int(name)
    else:
        raise lexer.error(f"the mesh has no axis '{name}'", start, hint="it has " + ", ".join(map(repr, names)))
    if not lexer.accept(":"):
        return AxisRef(index)
    lexer.expect("(", "before the size in front of a part of an axis")
    before = lexer.expect_integer()
    lexer.expect(")")
    size = lexer.expect_integer("the size of a part of an axis")
    if before < 1 or size < 2:
        raise lexer.error(f"({before}){size} is no part of an axis", start)
    return AxisRef(index, (before, size))


def _axis_refs(lexer: Lexer, mesh: Mesh) -> tuple[AxisRef, ...]:
    return tuple(list_of(lexer, "{", "}", lambda lexer: _axis_ref(lexer, mesh), "between axes"))


def _print_mesh(mesh: Mesh) -> str:
    if not mesh.axes and mesh.device_ids:
        return f"maximal_mesh[device_id={mesh.device_ids[0]}]"
    text = "mesh[" + ",".join(f"'{name}'={size}" for name, size in mesh.axes) + "]"
    if mesh.iota is not None:
        return f"{text}, device_ids=({_print_iota(mesh.iota)})"
    return f"{text}, device_ids=({joined(mesh.device_ids)})" if mesh.device_ids else text


def _print_axes(axes: Sequence[AxisRef], mesh: Mesh, separator: str = ", ") -> str:
    def one(axis: AxisRef) -> str:
        part = f":({axis.sub_axis[0]}){axis.sub_axis[1]}" if axis.sub_axis else ""
        return f"'{mesh.axes[axis.mesh_axis_index][0]}'{part}"

    return separator.join(map(one, axes))


# -- shardings in terms of a mesh --------------------------------------------------------------------


def _named(lexer: Lexer) -> Sharding:
    mesh = _mesh(lexer)
    fields: dict[str, object] = {}
    metadata: tuple[OpMetadata, ...] = ()
    # The comma after the mesh may be missing.
    if lexer.accept(",") or lexer.text in ("[", "replicated", "manual", "unreduced"):
        if lexer.text == "[":
            fields["dim_shardings"] = tuple(
                list_of(lexer, "[", "]", lambda lexer: _dimension(lexer, mesh), "between dimensions")
            )
        elif lexer.text in ("replicated", "manual", "unreduced") and mesh.axes:
            _whole(lexer, mesh, fields)
        elif lexer.text == "metadata":
            lexer.advance()
            lexer.expect("=")
            metadata = _metadata_list(lexer)
        else:
            raise lexer.expected("'[', replicated, manual or unreduced after a mesh")
    while lexer.accept(","):
        word = lexer.expect_name("replicated, unreduced, manual or metadata")
        lexer.expect("=", f"after '{word}'")
        if word == "metadata":
            metadata = _metadata_list(lexer)
        elif word in ("replicated", "unreduced", "manual"):
            if word == "unreduced" and lexer.text in _REDUCTIONS:
                fields["reduction_op"] = lexer.expect_name().upper()
            fields[word + "_axes"] = _axis_refs(lexer, mesh)
        else:
            raise lexer.error(f"unknown word '{word}' in a sharding")
    lexer.expect("}", "after a sharding")
    named = NamedSharding(mesh, **fields)  # pyright: ignore
    return Sharding("OTHER", named=named, metadata=metadata)


def _whole(lexer: Lexer, mesh: Mesh, fields: dict[str, object]) -> None:
    """A word for the whole value, without dimensions."""
    word = lexer.expect_name()
    every = tuple(AxisRef(i) for i in range(len(mesh.axes)))
    if word == "manual":
        fields["manual_axes"] = every
    elif word == "unreduced":
        if lexer.accept("="):
            if lexer.text not in _REDUCTIONS and lexer.text != "{":
                raise lexer.expected("one of " + ", ".join(_REDUCTIONS))
            if lexer.text != "{":
                fields["reduction_op"] = lexer.expect_name().upper()
        fields["unreduced_axes"] = _axis_refs(lexer, mesh) if lexer.text == "{" else every


def _dimension(lexer: Lexer, mesh: Mesh) -> tuple[tuple[AxisRef, ...], bool]:
    axes: list[AxisRef] = []
    lexer.expect("{", "before the axes of a dimension")
    while lexer.text != "}":
        if lexer.accept("?"):
            lexer.expect("}", "after '?'")
            return tuple(axes), False
        axes.append(_axis_ref(lexer, mesh))
        if not lexer.accept(",") and lexer.text != "}":
            raise lexer.expected("',' or '}' between axes")
    lexer.advance()
    return tuple(axes), True


def _print_named(named: NamedSharding, metadata: str) -> str:
    mesh = named.mesh
    text = _print_mesh(mesh)
    every = tuple(AxisRef(i) for i in range(len(mesh.axes)))
    lists = [("replicated", named.replicated_axes), ("unreduced", named.unreduced_axes), ("manual", named.manual_axes)]
    reduction = named.reduction_op.lower()
    if not mesh.axes and mesh.device_ids:
        return f"{{{text}{metadata}}}"
    if not named.dim_shardings and not named.replicated_axes:
        axis_lists = [(word, axes) for word, axes in lists if axes]
        if not axis_lists:
            return f"{{{text}, replicated{metadata}}}"
        if axis_lists == [("manual", every)]:
            return f"{{{text}, manual{metadata}}}"
        if axis_lists == [("unreduced", every)]:
            return f"{{{text}, unreduced{'' if reduction == 'sum' else '=' + reduction}{metadata}}}"
    dimensions = []
    for axes, closed in named.dim_shardings:
        inside = _print_axes(axes, mesh)
        dimensions.append("{" + inside + ("" if closed else ", ?" if inside else "?") + "}")
    text += f", [{', '.join(dimensions)}]"
    for word, axes in lists:
        if axes:
            operation = reduction if word == "unreduced" and reduction != "sum" else ""
            text += f", {word}={operation}{{{_print_axes(axes, mesh)}}}"
    return f"{{{text}{metadata}}}"


# -- printing ----------------------------------------------------------------------------------------


def print_sharding(sharding: Sharding) -> str:
    """A sharding as XLA prints it."""
    if sharding.kind == "TUPLE":
        parts: list[str] = []
        for number, element in enumerate(sharding.elements):
            mark = f"/*index={number}*/" if number and number % 5 == 0 else ""
            parts.append(mark + print_sharding(element))
        return "{" + ", ".join(parts) + "}"
    metadata = ""
    if len(sharding.metadata) == 1:
        metadata = f"metadata={{{print_metadata(sharding.metadata[0])}}}"
    elif sharding.metadata:
        metadata = "metadata={" + ", ".join(f"{{{print_metadata(m)}}}" for m in sharding.metadata) + "}"
    if sharding.named is not None:
        return _print_named(sharding.named, metadata and f", {metadata}")
    words: list[str] = []
    if sharding.kind == "MAXIMAL":
        words.append(f"maximal device={sharding.devices[0]}")
    elif sharding.kind != "OTHER":
        words.append(sharding.kind.lower())
    elif sharding.iota is not None:
        words.append(f"devices=[{joined(sharding.tile_dimensions)}]<={_print_iota(sharding.iota)}")
    else:
        words.append(f"devices=[{joined(sharding.tile_dimensions)}]{joined(sharding.devices)}")
    if sharding.replicate_on_last_tile_dim:
        words.append("last_tile_dim_replicate")
    if sharding.last_tile_dims:
        words.append("last_tile_dims={" + ", ".join(kind.lower() for kind in sharding.last_tile_dims) + "}")
    if sharding.shard_group is not None:
        kind, number = sharding.shard_group
        words.append(f"shard_{kind.lower()} {number}")
    if metadata:
        words.append(metadata)
    return "{" + " ".join(words) + "}"


# -- device lists of collectives ---------------------------------------------------------------------


def parse_replica_groups(lexer: Lexer) -> ReplicaGroups:
    """``{{0,1},{2,3}}``, ``[2,2]<=[4]``, or ``mesh['x'=2] {'x'}``. Raises ParseError."""
    start = lexer.start
    try:
        if lexer.text == "{":
            return ReplicaGroups.from_lists(list_of(lexer, "{", "}", _group, "between groups"))
        if lexer.text in ("mesh", "maximal_mesh"):
            mesh = _mesh(lexer)
            return ReplicaGroups.from_mesh(mesh, _axis_refs(lexer, mesh))
        if lexer.text != "[":
            raise lexer.expected("replica groups, such as {{0,1},{2,3}} or [2,2]<=[4]")
        dimensions, _, iota = _tile_assignment(lexer)
        if iota is None or len(dimensions) != 2:
            raise lexer.error("an iota of replica groups is written [groups,size]<=[devices]", start)
        return ReplicaGroups.from_iota(iota)
    except ShapeError as fault:
        raise lexer.error(fault.rule, start) from None


def _group(lexer: Lexer) -> list[int]:
    return list_of(lexer, "{", "}", Lexer.expect_integer, "between device numbers")


def print_replica_groups(groups: ReplicaGroups) -> str:
    """Replica groups in the form in which they were given."""
    if groups.mesh is not None:
        return f"{_print_mesh(groups.mesh)} {{{_print_axes(groups.mesh_axes, groups.mesh, ',')}}}"
    if groups.iota is not None:
        return f"[{joined(groups.iota.dimensions)}]<={_print_iota(groups.iota)}"
    return "{" + ",".join("{" + joined(group) + "}" for group in groups.groups) + "}"
