"""HloModule, its graph and its cost, and the single passes that jaxlib exposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xlakit.compat.xla_client.binding import Wrapper, bound, unconstructed
from xlakit.compat.xla_client.errors import as_status
from xlakit.compat.xla_client.sharding import OpSharding
from xlakit.compat.xla_client.text.graph import dot_graph
from xlakit.compat.xla_client.text.printing import HloPrintOptions as HloPrintOptions, printed
from xlakit.errors import FormatError, UnsupportedError
from xlakit.ir.instruction import Computation as OurComputation, HloModule as OurModule


def module_of_proto(serialized: bytes) -> OurModule:
    """The module of a serialized HloModuleProto. Raises XlaRuntimeError for other bytes."""
    try:
        return OurModule.from_proto(serialized)
    except FormatError as error:
        raise as_status(error, "No program shape found in the proto", code="FAILED_PRECONDITION") from error


class HloComputation:
    """A computation of a module."""

    __slots__ = ("wrapped",)

    @unconstructed
    def __init__(self, wrapped: OurComputation) -> None:
        self.wrapped = wrapped

    @property
    def name(self) -> str:
        """Its name."""
        return self.wrapped.name

    def render_html(self, filename: str, /) -> None:
        """Write a page that shows the computation's text and its graph in Graphviz's language."""
        from html import escape

        from xlakit.formats.hlo_text import print_computation

        text, graph = print_computation(self.wrapped), dot_graph(self.wrapped)
        with open(filename, "w", encoding="utf-8") as file:
            file.write(f"<!doctype html><title>{escape(self.name)}</title><pre>{escape(text)}</pre>")
            file.write(f"<details><summary>Graphviz</summary><pre>{escape(graph)}</pre></details>\n")


class HloModule(Wrapper[OurModule]):
    """A module; passes change it in place."""

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("HloModule has no constructor; use hlo_module_from_text or from_serialized_hlo_module_proto")

    @staticmethod
    @bound
    def from_serialized_hlo_module_proto(serialized_hlo_module_proto: bytes, /) -> HloModule:
        """The module of a serialized HloModuleProto."""
        return HloModule.of(module_of_proto(serialized_hlo_module_proto))

    @property
    def name(self) -> str:
        """Its name."""
        return self.wrapped.name

    @property
    def spmd_output_sharding(self) -> OpSharding | None:
        """The sharding of the result of a partitioned module."""
        found = self.wrapped.spmd_output_sharding
        return None if found is None else OpSharding.of(found)

    @property
    def spmd_parameters_shardings(self) -> list[OpSharding] | None:
        """The shardings of the parameters of a partitioned module."""
        found = self.wrapped.spmd_parameters_shardings
        return [OpSharding.of(sharding) for sharding in found] if found else None

    @bound
    def to_string(self, options: HloPrintOptions | None = None) -> str:
        """HLO text."""
        return printed(self.wrapped, options or HloPrintOptions())

    @bound
    def as_serialized_hlo_module_proto(self) -> bytes:
        """A serialized HloModuleProto."""
        return self.wrapped.to_proto()

    def computations(self) -> list[HloComputation]:
        """Its computations, those that are called first."""
        return [HloComputation(computation) for computation in self.wrapped.computations]

    def to_dot_graph(self) -> str:
        """The graph of the entry in Graphviz's language."""
        return dot_graph(self.wrapped.entry)


@bound
def hlo_module_from_text(hlo_module_text: str, /) -> HloModule:
    """The module of HLO text."""
    return HloModule.of(OurModule.from_text(hlo_module_text))


@bound
def hlo_module_to_dot_graph(hlo_module: HloModule, /) -> str:
    """The graph of a module's entry in Graphviz's language."""
    return hlo_module.to_dot_graph()


@bound
def hlo_module_cost_analysis(client: object, module: HloModule, /) -> dict[str, float]:
    """The cost of a run of a module: "flops", "transcendentals", "bytes accessed", and bytes of each operand."""
    from xlakit.compat.xla_client.cost import properties_of

    return properties_of(module.wrapped)


class HloModuleGroup:
    """Several modules with one name."""

    __slots__ = ("_modules", "_name")

    def __init__(self, name: str, modules: Sequence[HloModule], /) -> None:
        self._name, self._modules = name, list(modules)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def to_modules(self) -> list[HloModule]:
        """Remove the modules from the group and return them."""
        found, self._modules = self._modules, []
        return found

    def to_string(self) -> str:
        """The text of all modules."""
        return f"HloModuleGroup {self._name}\n\n" + "".join(module.to_string() for module in self._modules)


class HloPassInterface:
    """A pass that changes a module in place."""

    name = "pass"

    def __init__(self) -> None:
        if type(self) is HloPassInterface:
            raise TypeError("HloPassInterface: no constructor defined!")

    def is_pass_pipeline(self) -> bool:
        """Whether this is a pipeline of passes."""
        return False

    @bound
    def run(self, module: HloModule, /) -> bool:
        """Run on a module; tells whether that changed it."""
        before = module.wrapped
        module.wrapped = self.changed(before)
        return module.wrapped is not before

    def run_on_module_group(self, module_group: HloModuleGroup, /) -> bool:
        """Run on all modules of a group; tells whether one of them changed."""
        changed = [self.run(module) for module in module_group._modules]  # pyright: ignore[reportPrivateUsage]
        return True in changed

    def changed(self, module: OurModule) -> OurModule:
        """The module after the pass; the same object where nothing changes."""
        from xlakit.passes.core.framework import PassContext

        context = PassContext(disabled=("map", "fusion"))
        context.begin(self.name)
        changed = self._pass().run(module, context)
        return changed if context.rewrites else module

    def _pass(self) -> Any:
        """The pass of xlakit."""
        raise UnsupportedError(f"{type(self).__name__} is no pass", hint="use HloDCE, CallInliner or TupleSimplifier")


class HloDCE(HloPassInterface):
    """Leave out instructions and computations that are not used."""

    name = "dce"

    def _pass(self) -> Any:
        from xlakit.passes.simplify.dead_code import DeadCode

        return DeadCode()


class CallInliner(HloPassInterface):
    """Replace calls by the instructions of their callees; the computations of maps and fusions stay."""

    name = "call-inliner"

    def _pass(self) -> Any:
        from xlakit.passes.canonicalize.inline_calls import InlineCalls

        return InlineCalls()


class FlattenCallGraph(HloPassInterface):
    """Would give each call a separate copy of its computation. xlakit's passes do not need that: this does nothing."""

    name = "flatten-call-graph"

    def run(self, module: HloModule, /) -> bool:
        """Leaves the module as it is; True, as jaxlib's tells of every module."""
        return True

    def changed(self, module: OurModule) -> OurModule:
        """The same module."""
        return module


class TupleSimplifier(HloPassInterface):
    """Replace elements of tuples that are made in the same computation, and tuples of all elements of one."""

    name = "tuple-simplifier"

    def _pass(self) -> Any:
        from xlakit.passes.core.rules import RulePass, Rules
        from xlakit.passes.simplify.control_flow import CONTROL_FLOW

        chosen = [rule for rule in CONTROL_FLOW if rule.name in ("element-of-tuple", "tuple-of-elements")]
        return RulePass(self.name, Rules(self.name, chosen), "simplify tuples")
