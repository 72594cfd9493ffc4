"""Function: writes the instructions of one LLVM function, with loops and branches that nest like Python's."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xlakit.cpu.llvm import promises
from xlakit.cpu.llvm.effort import Effort
from xlakit.cpu.llvm.loop import Loop, for_few_iterations, hints_for_iterations
from xlakit.cpu.llvm.types import I1, I8, I32, I64, PTR, VOID, Type, check_memory, vector
from xlakit.cpu.llvm.uniform import hints_for_body
from xlakit.cpu.llvm.values import Operand, Value
from xlakit.errors import InternalError

if TYPE_CHECKING:
    from xlakit.cpu.llvm.module import Module


class Function:
    """One function of a Module. Instructions are appended to the current block."""

    def __init__(
        self, module: Module, name: str, result: Type, parameters: Sequence[Type], attributes: Sequence[str] = ()
    ) -> None:
        self.module = module
        self.name = name
        self.result = result
        self.attributes = list(promises.checked_attributes(attributes))
        self.parameters = tuple(Value(self, t, f"%p{i}") for i, t in enumerate(parameters))
        self._unaliased = frozenset[int]()
        self.linkage = "internal "
        self.effort = Effort.ALL
        # Whether elementary functions are calls, because the code is not vectorized; and how many have been written.
        self.calls_math, self.elementary_functions = False, 0
        # Whether compiling it together with its callers gains nothing.
        self.is_apart = False
        # Whether it has independent loops: LLVM may vectorize long ones, and unrolls those of few iterations.
        self.has_independent_loops = self.has_long_loops = False
        # Whether it consists of one or two vector computations, without a loop.
        self.is_one_vector = False
        self._lines: list[str] = []
        self._entry: list[str] = []
        self._count, self._label = 0, "entry"
        # Whether the current block has no terminator yet, the function consists of assembly, stores bypass caches.
        self._is_open, self._is_assembly, self._is_non_temporal = True, False, False
        self._access_group = ""
        # Fast-math flags for the floating point instructions that follow, such as promises.REASSOCIATES.
        self.fast_math = ""
        # The value that is returned at the end of the code; of a function without one, the code must end with ret().
        self.result_at_end: Value | None = None

    # -- writing ---------------------------------------------------------------------------------

    def emit(self, type: Type, text: str, *, first: bool = False) -> Value:
        """Append an instruction that has a result; with ``first`` to the first block, which is run once."""
        self._count += 1
        name = f"%v{self._count}"
        (self._entry if first else self._lines).append(f"  {name} = {text}")
        return Value(self, type, name)

    def emit_void(self, text: str) -> None:
        """Append an instruction without a result."""
        self._lines.append(f"  {text}")

    def constant(self, type: Type, number: float) -> Value:
        """A constant; of a vector type, the same number in each lane."""
        return Value(self, type, type.constant(number), number if type.lanes == 1 else None)

    def i64(self, number: int) -> Value:
        """An I64 constant."""
        return Value(self, I64, str(number), number)

    def i32(self, number: int) -> Value:
        """An I32 constant."""
        return Value(self, I32, str(number), number)

    def null(self) -> Value:
        """The null pointer."""
        return Value(self, PTR, "null")

    def address(self, name: str) -> Value:
        """The address of a global or function of the module."""
        return Value(self, PTR, f"@{name}")

    def undefined(self, type: Type) -> Value:
        """A poison value, all of whose lanes must be replaced before they are read."""
        return Value(self, type, promises.UNDEFINED)

    def flags(self, type: Type) -> str:
        """The fast-math flags of an instruction of a type, with a leading space."""
        flags = promises.checked_fast_math(self.fast_math)
        return f" {flags}" if flags and type.is_float else ""

    def comment(self, text: str) -> None:
        """Append a comment to the IR."""
        self._lines.append(f"  ; {text}")

    # -- memory ----------------------------------------------------------------------------------

    def load(self, type: Type, pointer: Value, *, align: int = 0, alone: bool = False) -> Value:
        """The value of ``type`` at ``pointer``.

        alone: the load is volatile, so that LLVM does not merge it with others.

        No load carries ``!invariant.load``. It promises that the memory holds one value wherever the load may be
        executed, which includes all functions that the code is inlined into: the entry that calls a kernel
        writes the kernel's table of pointers. These pointers are loaded once, before a kernel's loops, so the
        promise would gain nothing.
        """
        check_memory(type)
        tail = f", align {align or promises.alignment(type)}{self._access_group}"
        return self.emit(type, f"load {'volatile ' * alone}{type.name}, ptr {pointer.text}{tail}")

    def store(self, value: Value, pointer: Value, *, align: int = 0, nontemporal: bool = False) -> None:
        """Write ``value`` where ``pointer`` points."""
        check_memory(value.type)
        tail = f", align {align or promises.alignment(value.type)}{self._access_group}"
        if nontemporal:
            tail += promises.non_temporal(self.module.one_metadata)
            self.module.declare("llvm.x86.sse.sfence", VOID, [])
            self._is_non_temporal = True
        self.emit_void(f"store {value.type.name} {value.text}, ptr {pointer.text}{tail}")

    def prefetch(self, pointer: Value, level: int = 1) -> None:
        """Prefetch the cache line at an address, which need not be valid, into the cache of a level (1 to 3)."""
        self.module.declare("llvm.prefetch.p0", VOID, [PTR, I32, I32, I32])
        self.call("llvm.prefetch.p0", VOID, pointer, self.i32(0), self.i32(4 - level), self.i32(1))

    def at(self, pointer: Value, type: Type, index: Operand) -> Value:
        """The address of element ``index`` of an array of ``type``."""
        if not isinstance(index, Value):
            index = self.i64(int(index))
        if index.constant == 0:
            return pointer
        return self.emit(PTR, f"{promises.ADDRESS} {type.name}, ptr {pointer.text}, {index.type.name} {index.text}")

    def alloca(self, type: Type, count: int = 1, *, align: int = 0) -> Value:
        """Memory on the stack, allocated in the first block, which lives until the function returns."""
        if self._access_group:
            raise InternalError(f"iterations of an independent loop of {self.name} would share memory on the stack")
        return self.emit(PTR, f"alloca {type.name}, i64 {count}, align {align or max(8, type.bytes)}", first=True)

    def pointer(self, table: Value, index: Operand) -> Value:
        """The pointer at an index of a table of pointers."""
        return self.load(PTR, self.at(table, PTR, index))

    def table(self, pointers: Sequence[Value]) -> Value:
        """A table of pointers on the stack."""
        table = self.alloca(PTR, max(1, len(pointers)))
        for number, pointer in enumerate(pointers):
            self.store(pointer, self.at(table, PTR, number))
        return table

    # -- memory that threads share -----------------------------------------------------------------

    def atomic_load(self, type: Type, pointer: Value, ordering: str = "acquire") -> Value:
        """An atomic load; ``ordering`` is LLVM's name of its memory order."""
        return self.emit(type, f"load atomic {type.name}, ptr {pointer.text} {ordering}, align {type.bytes}")

    def atomic_store(self, value: Value, pointer: Value, ordering: str = "release") -> None:
        """An atomic store; ``ordering`` is LLVM's name of its memory order."""
        kind = value.type
        self.emit_void(f"store atomic {kind.name} {value.text}, ptr {pointer.text} {ordering}, align {kind.bytes}")

    def atomic_update(self, opcode: str, pointer: Value, value: Value, ordering: str = "seq_cst") -> Value:
        """Change memory atomically by ``add``, ``sub``, ``and``, ``or`` or ``xchg``; gives the previous value."""
        return self.emit(
            value.type, f"atomicrmw {opcode} ptr {pointer.text}, {value.type.name} {value.text} {ordering}"
        )

    def compare_exchange(self, pointer: Value, expected: Value, value: Value) -> tuple[Value, Value]:
        """Atomically store ``value`` if memory holds ``expected``; gives the old value, and whether it was stored."""
        kind = value.type.name
        pair = self._name(value.type).text
        self._lines.append(
            f"  {pair} = cmpxchg ptr {pointer.text}, {kind} {expected.text}, {kind} {value.text} seq_cst seq_cst"
        )
        old = self.emit(value.type, f"extractvalue {{ {kind}, i1 }} {pair}, 0")
        return old, self.emit(I1, f"extractvalue {{ {kind}, i1 }} {pair}, 1")

    # -- calls -----------------------------------------------------------------------------------

    def call(self, callee: Function | str, result: Type, *arguments: Value, attributes: str = "") -> Value:
        """Call a function of the module, or a declared function by name; gives its result (of type VOID if none)."""
        name = callee if isinstance(callee, str) else callee.name
        known = self.module.functions.get(name)
        types = [a.type for a in arguments]
        if known is not None and (known.result, [p.type for p in known.parameters]) != (result, types):
            # LLVM would accept this as a call of a function of another type at the same address.
            raise InternalError(f"{name} is called as another function of this name")
        if known is not None and known.has_memory and self._access_group:
            raise InternalError(f"iterations of an independent loop of {self.name} would share the memory of {name}")
        operands = ", ".join(f"{a.type.name} {a.text}" for a in arguments)
        text = f"call{self.flags(result)} {result.name} @{name}({operands}){attributes}"
        if not name.startswith("llvm."):
            # If the callee is inlined here, its accesses become part of the loop, so the call has the loop's group.
            text += self._access_group
        return self._emit_call(result, text)

    def call_pointer(self, pointer: Value, result: Type, *arguments: Value) -> Value:
        """Call through a pointer."""
        operands = ", ".join(f"{a.type.name} {a.text}" for a in arguments)
        return self._emit_call(result, f"call {result.name} {pointer.text}({operands})")

    def _emit_call(self, result: Type, text: str) -> Value:
        if result is not VOID:
            return self.emit(result, text)
        self.emit_void(text)
        return Value(self, VOID, "")

    def intrinsic(self, name: str, result: Type, *arguments: Value, of: Type | None = None) -> Value:
        """Call an LLVM intrinsic that is overloaded on its result: ``intrinsic("llvm.fma", F32, a, b, c)``.

        of: a second type that it is overloaded on.
        """
        full = f"{name}.{result.mangled}" + (f".{of.mangled}" if of is not None else "")
        self.module.declare(full, result, [a.type for a in arguments])
        return self.call(full, result, *arguments)

    # -- choices ---------------------------------------------------------------------------------

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """``yes`` where the condition holds, else ``no``; both are evaluated."""
        if yes.type is not no.type:
            raise InternalError(f"select of {yes.type} and {no.type}")
        if yes.text == no.text:
            return yes
        if condition.constant is not None:
            return yes if condition.constant else no
        selector = f"{condition.type.name} {condition.text}"
        return self.emit(yes.type, f"select {selector}, {yes.type.name} {yes.text}, {no.type.name} {no.text}")

    def if_else(
        self,
        condition: Value,
        yes: Callable[[], Sequence[Value] | None],
        no: Callable[[], Sequence[Value] | None],
        *,
        likely: bool | None = None,
    ) -> tuple[Value, ...]:
        """Run one of two pieces of code; gives its values. For a constant condition only one piece is written."""
        if condition.constant is not None:
            return tuple((yes() if condition.constant else no()) or ())
        then, other, join = self._labels("then", "else", "join")
        self._branch(condition, then, other, likely)
        of_yes, end_yes = tuple(yes() or ()), self._label
        self._jump(join)
        self._start(other)
        of_no, end_no = tuple(no() or ()), self._label
        self._jump(join)
        self._start(join)
        return tuple(
            self.emit(a.type, f"phi {a.type.name} [ {a.text}, %{end_yes} ], [ {b.text}, %{end_no} ]")
            for a, b in zip(of_yes, of_no, strict=True)
        )

    @contextmanager
    def if_(self, condition: Value, *, likely: bool | None = None) -> Generator[None]:
        """Run the block if the condition holds."""
        then, join = self._labels("then", "join")
        self._branch(condition, then, join, likely)
        yield
        self._jump(join)
        self._start(join)

    def _branch(self, condition: Value, yes: str, no: str, likely: bool | None) -> None:
        weights = "" if likely is None else f", !prof {self.module.branch_weights(likely=likely)}"
        self.emit_void(f"br i1 {condition.text}, label %{yes}, label %{no}{weights}")
        self._start(yes)

    # -- loops -----------------------------------------------------------------------------------

    @contextmanager
    def loop(
        self,
        begin: Operand,
        end: Operand,
        step: int = 1,
        *,
        carried: Sequence[Value] = (),
        independent: bool = False,
        hints: Sequence[str] = (),
    ) -> Generator[Loop]:
        """Iterate ``index`` from ``begin`` while it is less than ``end``.

        independent: no iteration reads or writes what another iteration writes, so LLVM may execute several at once.
        hints: further properties of the loop, such as ``'"llvm.loop.unroll.disable"'``.
        """
        first = begin if isinstance(begin, Value) else self.i64(int(begin))
        last = end if isinstance(end, Value) else self.constant(first.type, end)
        body, latch, exit = self._labels("loop", "latch", "done")
        before = self._label
        guarded = first.constant is None or last.constant is None or first.constant >= last.constant
        if guarded:
            some = first < last
            self.emit_void(f"br i1 {some.text}, label %{body}, label %{exit}")
        else:
            self.emit_void(f"br label %{body}")
        self._start(body)
        phi_line = len(self._lines)
        self._lines.append("")
        index = self._name(first.type)
        values = [self._name(v.type) for v in carried]
        loop = Loop(index, values)
        outer = self._access_group
        group = ""
        if independent:
            self.has_independent_loops = True
            group = self.module.access_group()
            self._access_group = promises.in_group(group)
        yield loop
        self._access_group = outer
        self._jump(latch)
        self._start(latch)
        body_lines = self._lines[phi_line + 1 :]
        next_index = self._incremented(index, step)
        again = next_index < last
        properties = hints_for_iterations(promises.checked_hints(hints), first.constant, last.constant, step)
        properties = hints_for_body(properties, body_lines, [index.text, *(v.text for v in values)])
        metadata = self._loop_metadata(properties, group, first, last)
        self.emit_void(f"br i1 {again.text}, label %{body}, label %{exit}{metadata}")

        def met(a: Value, b: Value) -> str:
            return f"phi {a.type.name} [ {a.text}, %{before} ], [ {b.text}, %{latch} ]"

        phis = [(index, first, next_index), *zip(values, carried, loop.next_values, strict=True)]
        self._lines[phi_line] = "\n".join(f"  {v.text} = {met(a, b)}" for v, a, b in phis)
        self._start(exit)
        pairs = zip(carried, loop.next_values, strict=True)
        loop.results = tuple(self.emit(a.type, met(a, b)) for a, b in pairs) if guarded else loop.next_values

    def _loop_metadata(self, properties: list[str], group: str, first: Value, last: Value) -> str:
        """The ``!llvm.loop`` suffix of a back edge; ``group`` is the access group of an independent loop, or ""."""
        if group:
            properties.append(promises.parallel(group))
            few = for_few_iterations(first.constant, last.constant)
            self.has_long_loops |= not few
            if not any("vectorize" in hint or "unroll" in hint for hint in properties):
                properties += few
        return f", !llvm.loop {self.module.loop_metadata(properties)}" if properties else ""

    def _incremented(self, index: Value, step: int) -> Value:
        """The value of a loop's index in the next iteration."""
        next_index = self.emit(index.type, f"add {promises.COUNTS} {index.type.name} {index.text}, {step}")
        if self.effort is not Effort.CODE:
            return next_index
        # The freeze hides the induction variable from LLVM: rewriting addresses as inductions would take
        # longer than all other passes, and the written code is as good.
        return self.emit(index.type, f"freeze {index.type.name} {next_index.text}")

    @contextmanager
    def while_(self, carried: Sequence[Value], condition: Callable[[Loop], Value]) -> Generator[Loop]:
        """Repeat while ``condition``, evaluated on the carried values before each iteration, holds."""
        header, body, exit = self._labels("while", "iteration", "done")
        before = self._label
        self._jump(header)
        self._start(header)
        phi_line = len(self._lines)
        self._lines.append("")
        values = [self._name(v.type) for v in carried]
        loop = Loop(self.i64(0), values)
        go = condition(loop)
        self.emit_void(f"br i1 {go.text}, label %{body}, label %{exit}")
        self._start(body)
        yield loop
        last = self._label
        self._jump(header)
        self._lines[phi_line] = "\n".join(
            f"  {v.text} = phi {v.type.name} [ {a.text}, %{before} ], [ {b.text}, %{last} ]"
            for v, a, b in zip(values, carried, loop.next_values, strict=True)
        )
        self._start(exit)
        loop.results = tuple(values)

    # -- ends ------------------------------------------------------------------------------------

    def ret(self, value: Value | None = None) -> None:
        """Return; no instruction may follow in this block. A function without a result needs none at its end."""
        if self._is_non_temporal:
            # Other threads see these stores before any later one.
            self.call("llvm.x86.sse.sfence", VOID)
        self.emit_void("ret void" if value is None else f"ret {value.type.name} {value.text}")
        self._is_open = False

    def is_assembly(self, lines: Sequence[str]) -> None:
        """Make the function consist of assembly lines, the last of which returns; it has the C calling convention."""
        text = "\\0A".join(line.replace("$", "$$") for line in lines)
        self._is_assembly = True
        self.emit_void(f'call void asm sideeffect "{text}", "~{{memory}}"()')
        self.emit_void(promises.BEHIND_ASSEMBLY)
        self._is_open = False

    def return_if(self, condition: Value, value: Value | None = None) -> None:
        """Return early if the condition holds."""
        then, rest = self._labels("return", "rest")
        self._branch(condition, then, rest, None)
        self.ret(value)
        self._start(rest)

    @property
    def has_memory(self) -> bool:
        """Whether the function has memory on the stack."""
        return bool(self._entry)

    def never_overlap(self, *parameters: int) -> None:
        """Promise noalias: while the function runs, the memory of these parameters is accessed through them alone."""
        self._unaliased = frozenset(parameters)

    @property
    def declaration(self) -> str:
        """The declaration of this function for another module."""
        return f"declare {self.result.name} @{self.name}({', '.join(p.type.name for p in self.parameters)})"

    def text(self) -> str:
        """The definition as LLVM IR."""
        if self._is_open:
            if self.result is not VOID and self.result_at_end is None:
                raise InternalError(f"the function {self.name} does not return")
            self.ret(self.result_at_end)
        alias = dict.fromkeys(self._unaliased, f" {promises.NO_ALIAS}")
        parameters = ", ".join(f"{p.type.name}{alias.get(n, '')} {p.text}" for n, p in enumerate(self.parameters))
        own = [*([promises.ASSEMBLY] if self._is_assembly else []), *promises.checked_attributes(self.attributes)]
        attributes = " ".join([promises.NO_UNWIND, promises.float_mode(), *own])
        lines = "\n".join([*self._entry, *self._lines])
        return (
            f"define {self.linkage}{self.result.name} @{self.name}({parameters}) {attributes} {{\nentry:\n{lines}\n}}\n"
        )

    # -- helpers ---------------------------------------------------------------------------------

    def _name(self, type: Type) -> Value:
        self._count += 1
        return Value(self, type, f"%v{self._count}")

    def _labels(self, *stems: str) -> tuple[str, ...]:
        self._count += 1
        return tuple(f"{stem}{self._count}" for stem in stems)

    def _start(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._label, self._is_open = label, True

    def _jump(self, label: str) -> None:
        self._lines.append(f"  br label %{label}")

    # -- vectors ---------------------------------------------------------------------------------

    def splat(self, value: Value, lanes: int) -> Value:
        """A vector with ``value`` in each lane."""
        kind = vector(value.type, lanes)
        first = self.emit(
            kind, f"insertelement {kind.name} {promises.UNDEFINED}, {value.type.name} {value.text}, i32 0"
        )
        return self.shuffle(first, first, [0] * lanes)

    def counted(self, element: Type, lanes: int, step: int = 1) -> Value:
        """The vector of integers 0, step, 2 * step, ..."""
        # Numbers wrap around at the width of the element.
        numbers = [n * step & ((1 << element.bits) - 1) for n in range(lanes)]
        text = ", ".join(f"{element.name} {n}" for n in numbers)
        return Value(self, vector(element, lanes), f"<{text}>")

    def lane(self, value: Value, number: int | Value) -> Value:
        """One lane of a vector."""
        index = str(number) if isinstance(number, int) else number.text
        return self.emit(value.type.element, f"extractelement {value.type.name} {value.text}, i32 {index}")

    def with_lane(self, value: Value, number: int | Value, lane: Value) -> Value:
        """The vector with one lane replaced."""
        index = str(number) if isinstance(number, int) else number.text
        return self.emit(
            value.type, f"insertelement {value.type.name} {value.text}, {lane.type.name} {lane.text}, i32 {index}"
        )

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lanes of the concatenation of ``a`` and ``b``, chosen by number; -1 stands for a lane that is not read."""
        mask = ", ".join(f"i32 {promises.UNDEFINED}" if n < 0 else f"i32 {n}" for n in lanes)
        kind = vector(a.type.element, len(lanes))
        return self.emit(
            kind, f"shufflevector {a.type.name} {a.text}, {b.type.name} {b.text}, <{len(lanes)} x i32> <{mask}>"
        )

    # -- memory blocks --------------------------------------------------------------------------

    def copy(self, target: Value, source: Value, count: Value | int, *, moves: bool = False) -> None:
        """Copy ``count`` bytes; ``moves`` permits the two ranges to overlap."""
        name = "llvm.memmove.p0.p0.i64" if moves else "llvm.memcpy.p0.p0.i64"
        self.module.declare(name, VOID, [PTR, PTR, I64, I1])
        number = count if isinstance(count, Value) else self.i64(count)
        self.call(name, VOID, target, source, number, self.constant(I1, 0))

    def fill(self, target: Value, byte: int, count: Value | int) -> None:
        """Set ``count`` bytes to one value."""
        name = "llvm.memset.p0.i64"
        self.module.declare(name, VOID, [PTR, I8, I64, I1])
        number = count if isinstance(count, Value) else self.i64(count)
        self.call(name, VOID, target, self.constant(I8, byte), number, self.constant(I1, 0))
