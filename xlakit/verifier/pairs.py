"""Rules for async pairs: each start has one done, and their shapes and attributes must fit.

Source: the checks of OpenXLA's HLO verifier for asynchronous pairs and channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xlakit.data.shape import Shape
from xlakit.ir.control_deps import is_control_dep
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.communication.async_pairs import DONES, STARTS
from xlakit.ops.communication.asynchronous import Async, AsyncDone, AsyncStart, AsyncUpdate
from xlakit.ops.communication.transfer import Domain, Recv, Send
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Copy, GetTupleElement, OptimizationBarrier, Parameter, Tuple
from xlakit.verifier.faults import Fault, Program

# Starts with exactly one user, their done; a send or recv may also reach its done through a tuple. An async-start is
# not among them, as async-updates may stand between it and its done.
_STARTS = tuple(start for start in DONES if start is not AsyncStart)
_DONES = tuple(DONES[start] for start in _STARTS)
_TRANSFERS = (Send, Recv)
_ASYNC = (AsyncStart, AsyncUpdate)

# Through these a value passes unchanged from a start to its done.
_PASSING = (Tuple, GetTupleElement, OptimizationBarrier, Copy, Parameter, While)
_PASSING_TARGETS = frozenset(
    {
        "Sharding",
        "LocalToGlobalShape",
        "GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.FuncResultSharding",
    }
)
# Custom calls whose computation is a single operation: a start in one of them has its done in that of another call, so
# the pair is not visible within a computation.
_ALONE = frozenset({"xlakit.AtSizes"})
_ASYNC_USERS = (*_PASSING, AsyncUpdate, AsyncDone, Call, Conditional, Domain)
_GROUP_MARKER = "_collectives_group"


def pair_faults(program: Program) -> Iterator[Fault]:
    """Faults of starts and dones, of asynchronous computations, and of channels to the host."""
    kinds = {type(i.op) for _, i in program.instructions()}
    if not kinds.isdisjoint({*_STARTS, *_DONES}):
        yield from _pairs(program)
    if not kinds.isdisjoint(_TRANSFERS):
        yield from _host_channels(program)
    if any(issubclass(kind, Async) for kind in kinds):
        yield from _users(program)
        yield from _chains(program)
        yield from _wrapped(program)


# -- starts and dones of one kind ------------------------------------------------------------------


def _pairs(program: Program) -> Iterator[Fault]:
    for computation, instruction in program.instructions(*_STARTS, *_DONES):
        op = instruction.op
        if any(_calls_target(c, _ALONE) for c in program.callers.get(computation, [])):
            continue
        if isinstance(op, _STARTS):
            # A transfer that an async-start wraps is ended by the async-done.
            if instruction is computation.root and _is_wrapped(program, computation) and isinstance(op, _TRANSFERS):
                continue
            yield from _one_user(program, computation, instruction)
        else:
            yield from _known_operand(program, computation, instruction)


def _one_user(program: Program, computation: Computation, start: Instruction) -> Iterator[Fault]:
    users = [u for u in program.users.get(start, []) if not is_control_dep(u)]
    kind = DONES[type(start.op)]
    done = kind.opcode
    if len(users) != 1:
        yield Fault(computation, start, f"has {len(users)} users, it takes one", f"end it with one {done}")
        return
    (user,) = users
    if not isinstance(user.op, kind) and not _passes(user):
        yield Fault(
            computation,
            start,
            f"is used by {user.opcode} '{user.name}', only {done} can use it",
            f"end it with {done} and use what that gives",
        )
    elif isinstance(user.op, kind) and isinstance(start.op, _TRANSFERS):
        for name in ("channel_id", "is_host_transfer"):
            first, second = getattr(start.op, name), getattr(user.op, name)
            if first != second:
                yield Fault(
                    computation,
                    user,
                    f"{name} is {_said(second)}, its {start.opcode} says {_said(first)}",
                    "say the same for both",
                )


def _known_operand(program: Program, computation: Computation, done: Instruction) -> Iterator[Fault]:
    kind = STARTS[type(done.op)]
    start = kind.opcode
    (operand,) = done.operands
    if isinstance(operand.op, kind) or (kind in _TRANSFERS and isinstance(operand.op, GetTupleElement)):
        return
    producer = _producer(program, operand, (*_STARTS, *_ASYNC))
    if producer is None or not isinstance(producer.op, kind):
        yield Fault(
            computation,
            done,
            f"ends {operand.opcode} '{operand.name}', and can end nothing but {start}",
            f"give what {start} gave, as it is",
        )


def _said(value: object) -> str:
    return "not said" if value is None else str(value).lower()


def _host_channels(program: Program) -> Iterator[Fault]:
    first: dict[int, Instruction] = {}
    for computation, instruction in program.instructions(*_TRANSFERS):
        op: Any = instruction.op
        if not op.is_host_transfer or op.channel_id is None:
            continue
        other = first.setdefault(op.channel_id, instruction)
        same = other.op == op and other.shape.compatible(instruction.shape)
        if not same or other.annotations.frontend_attributes != instruction.annotations.frontend_attributes:
            yield Fault(
                computation,
                instruction,
                f"'{other.name}' uses channel {op.channel_id} to the host too, and differs in more than operands",
                "give them different channels",
            )


# -- asynchronous computations ---------------------------------------------------------------------


def _users(program: Program) -> Iterator[Fault]:
    for computation, instruction in program.instructions():
        for number, operand in enumerate(instruction.operands):
            if not isinstance(operand.op, _ASYNC):
                continue
            if not isinstance(instruction.op, _ASYNC_USERS) and not _passes(instruction):
                yield Fault(
                    computation,
                    instruction,
                    f"cannot use what {operand.opcode} '{operand.name}' gives",
                    "use the result of its async-done",
                )
            elif isinstance(instruction.op, (AsyncUpdate, AsyncDone)) and number:
                yield Fault(
                    computation,
                    instruction,
                    f"takes '{operand.name}' as its first operand only",
                    "give the asynchronous value first, further arguments after it",
                )


def _chains(program: Program) -> Iterator[Fault]:
    ended: dict[Instruction, Instruction] = {}
    updated: set[Instruction] = set()
    for computation, done in program.instructions(AsyncDone):
        producer = _async_producer(program, done)
        while producer is not None and isinstance(producer.op, AsyncUpdate):
            if producer in updated:
                yield Fault(
                    computation,
                    producer,
                    "is in two asynchronous chains, or in a circle",
                    "use each asynchronous value once",
                )
                return
            updated.add(producer)
            producer = _async_producer(program, producer)
        if producer is None:
            yield Fault(
                computation, done, "does not lead back to an async-start", "give what async-start or async-update gave"
            )
            return
        if producer in ended:
            yield Fault(
                computation,
                done,
                f"ends '{producer.name}', which '{ended[producer].name}' ends already",
                "end each async-start with one async-done",
            )
        ended[producer] = done
        yield from _bound(program, done, producer)
    for computation, instruction in program.instructions(*_ASYNC):
        finished = instruction in ended or instruction in updated
        if not finished and not _enters_loop(program, instruction):
            yield Fault(computation, instruction, "has no async-done", "end it with one async-done")


def _bound(program: Program, done: Instruction, start: Instruction) -> Iterator[Fault]:
    """Faults of the chain from an async-start to its done.

    Each update must run the start's computation and bind a prefix of its arguments; at the done all must be bound.
    """
    (called,) = start.op.called_computations
    wanted = [p.shape for p in called.parameters]
    link = done
    while link is not start:
        computation = program.computation_of[link]
        for other in link.op.called_computations:
            if other is not called and not _alike(other, called):
                yield Fault(
                    computation,
                    link,
                    f"runs {other.name}, its start runs {called.name}",
                    "leave calls out; updates and done run what the start runs",
                )
        previous = _async_producer(program, link)
        if previous is None:
            return
        shape = link.shape if link is not done else previous.shape
        given = _arguments(shape)
        if len(given) > len(wanted) or not all(a.compatible(b) for a, b in zip(given, wanted, strict=False)):
            yield Fault(
                computation,
                link,
                f"has the arguments {_listed(given)}, {called.name} takes {_listed(wanted)}",
                f"bind the arguments of {called.name} in order, from the first",
            )
        elif link is done and len(given) < len(wanted):
            yield Fault(
                computation,
                link,
                f"{called.name} has not got all its arguments yet",
                f"give the other {len(wanted) - len(given)} to an async-update before",
            )
        if link is done and not link.shape.compatible(called.root.shape):
            yield Fault(
                computation,
                link,
                f"gives {link.shape}, {called.name} gives {called.root.shape}",
                f"declare {called.root.shape.without_layout()}",
            )
        link = previous


def _arguments(shape: Shape) -> tuple[Shape, ...]:
    return shape.tuple_shapes[0].tuple_shapes if shape.tuple_shapes else ()


def _listed(shapes: tuple[Shape, ...] | list[Shape]) -> str:
    return f"({', '.join(s.to_string(with_layout=False) for s in shapes)})"


def _alike(a: Computation, b: Computation) -> bool:
    def facts(computation: Computation) -> list[tuple[str, str]]:
        return [(i.opcode, i.shape.to_string(with_layout=False)) for i in computation.instructions]

    return a.execution_thread == b.execution_thread and facts(a) == facts(b)


def _wrapped(program: Program) -> Iterator[Fault]:
    for computation, start in program.instructions(AsyncStart):
        (called,) = start.op.called_computations
        op: Any = start.op
        if op.async_execution_thread != called.execution_thread:
            yield Fault(
                computation,
                start,
                f"async_execution_thread is {op.async_execution_thread}, {called.name} runs on "
                f"{called.execution_thread}",
                f"give {called.name} the execution_thread that the start names",
            )
        if called.execution_thread != "main" or _GROUP_MARKER in dict(start.annotations.frontend_attributes):
            continue
        inner = [i for i in called.instructions if i is not called.root]
        if not all(isinstance(i.op, (Parameter, GetTupleElement)) for i in inner):
            yield Fault(
                computation,
                start,
                f"{called.name} must have one instruction besides its parameters",
                "call a computation that has more",
            )


def _is_wrapped(program: Program, computation: Computation) -> bool:
    return any(isinstance(c.op, AsyncStart) for c in program.callers.get(computation, []))


# -- following a value -----------------------------------------------------------------------------


def _calls_target(instruction: Instruction, targets: set[str] | frozenset[str]) -> bool:
    return isinstance(instruction.op, CustomCall) and getattr(instruction.op, "custom_call_target", "") in targets


def _passes(instruction: Instruction) -> bool:
    return isinstance(instruction.op, _PASSING) or _calls_target(instruction, _PASSING_TARGETS)


def _async_producer(program: Program, link: Instruction) -> Instruction | None:
    return _producer(program, link.operands[0], _ASYNC)


def _producer(program: Program, instruction: Instruction, kinds: tuple[type[Op], ...]) -> Instruction | None:
    """The nearest instruction of one of ``kinds`` that a value comes from, searched through tuples and loops."""
    seen: set[tuple[Instruction, tuple[int, ...]]] = set()
    stack: list[tuple[Instruction, tuple[int, ...]]] = [(instruction, ())]
    while stack:
        node, index = stack.pop()
        if (node, index) in seen:
            continue
        seen.add((node, index))
        if isinstance(node.op, kinds):
            return node
        stack.extend(reversed(_sources(program, node, index)))
    return None


def _sources(program: Program, node: Instruction, index: tuple[int, ...]) -> list[tuple[Instruction, tuple[int, ...]]]:
    """Where the element ``index`` (innermost first) of a value may come from, the likeliest first."""
    op: Any = node.op
    if isinstance(node.op, GetTupleElement):
        return [(node.operands[0], (*index, op.index))]
    if isinstance(node.op, Tuple):
        if not index:
            return [(operand, ()) for operand in node.operands]
        return [(node.operands[index[-1]], index[:-1])] if index[-1] < len(node.operands) else []
    if isinstance(node.op, While):
        return [(op.body.root, index), (node.operands[0], index)]
    if isinstance(node.op, Parameter):
        body = program.computation_of[node]
        loops = [c for c in program.callers.get(body, []) if isinstance(c.op, While)]
        if len(loops) == 1 and getattr(loops[0].op, "body", None) is body:
            return [(loops[0].operands[0], index), (body.root, index)]
        return []
    return [(node.operands[0], index)] if _passes(node) and node.operands else []


def _enters_loop(program: Program, instruction: Instruction) -> bool:
    """Whether a value enters a while, or leaves the body of one: then its done may be in another iteration."""
    passing = (AsyncUpdate, Tuple, GetTupleElement, OptimizationBarrier, Domain, Call, Conditional)
    seen: set[Instruction] = set()
    stack = [instruction]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        computation = program.computation_of[node]
        if node is computation.root:
            for caller in program.callers.get(computation, []):
                if isinstance(caller.op, While) and getattr(caller.op, "body", None) is computation:
                    return True
                if isinstance(caller.op, (Call, Conditional)):
                    stack.append(caller)
        for user in program.users.get(node, []):
            if isinstance(user.op, While):
                return True
            if isinstance(user.op, passing):
                stack.append(user)
    return False
