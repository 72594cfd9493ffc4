"""Values that enter and leave a running program: infeed, outfeed, channels; and domain boundaries.

Source: XLA's document "Operation semantics", sections Infeed, Send and Recv; Outfeed, the forms with tokens and the
transfers with the host are those of today's XlaBuilder.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import TOKEN_SHAPE, Shape, make_tuple_shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError
from xlakit.ir.attributes import Sharding
from xlakit.ir.operation import TOKEN, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ir.traits import Distinct, Done, ForeignMemory, Forwarding, Start
from xlakit.ops.data import Same, create_token, get_tuple_element
from xlakit.ops.handle import Builder, XlaOp, building, emit
from xlakit.ops.shared.calling import agree, zero_value
from xlakit.ops.shared.checks import check_channel, need_declared

_REQUEST = Shape(PrimitiveType.U32)


class Transfer(Op):
    """The base of operations that exchange values with the host or other programs."""

    __slots__ = ()

    @property
    def has_side_effect(self) -> bool:
        return True


def _check_token(shape: Shape) -> None:
    if not shape.is_token:
        raise ShapeError(f"the last operand must be a token, got {shape}", hint="make one with create_token")


def _check_value(value: Shape) -> None:
    if value.is_token:
        raise ShapeError("a token cannot be sent", hint="give the value first and the token, which orders it, second")


def _check_feed(shape: Shape) -> None:
    for element in shape.tuple_shapes_or_self:
        if not element.is_array:
            raise ShapeError(f"an array or a tuple of arrays can be fed, not {shape}", hint="do not nest tuples")


# -- infeed and outfeed ----------------------------------------------------------------------------


@operation("infeed", arity=1, documents=("Infeed", "InfeedWithToken"))
class Infeed(Transfer, ForeignMemory):
    """The next value of the device's infeed, and a token."""

    infeed_config: str = attribute(Kind.STRING, default="")

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        _check_token(operands[0])
        result = need_declared(declared).without_layout()
        if len(result.tuple_shapes) != 2 or not result.tuple_shapes[1].is_token:
            raise ShapeError(
                f"gives a tuple of the value and a token, not {result}", hint="declare (the value's shape, token[])"
            )
        _check_feed(result.tuple_shapes[0])
        return result

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        shape = context.shape.tuple_shapes[0]
        # An empty tuple reads nothing from the feed.
        return (context.infeed(shape) if shape.is_array or shape.tuple_shapes else (), TOKEN)


@building
def infeed(builder: Builder, shape: Shape, config: str = "") -> XlaOp:
    """Read the next value of the device's infeed.

    shape: an array, or a tuple of arrays; tuples do not nest. For the empty tuple nothing is read.

    Gives the value. Infeeds happen in the order in which they are built. Raises ShapeError.
    Source: Operation semantics, Infeed.
    """
    return get_tuple_element(infeed_with_token(create_token(builder), shape, config), 0)


@building
def infeed_with_token(token: XlaOp, shape: Shape, config: str = "") -> XlaOp:
    """Read the next value of the infeed after ``token``; gives (value, token).

    Raises ShapeError. Source: XlaBuilder::InfeedWithToken.
    """
    return emit(Infeed(infeed_config=config), token, shape=make_tuple_shape([shape, TOKEN_SHAPE]))


@operation("outfeed", arity=2, documents=("Outfeed", "OutfeedWithToken"))
class Outfeed(Transfer):
    """Append the first operand to the device's outfeed."""

    outfeed_shape: Shape | None = attribute(Kind.SHAPE, default=None, always=True)
    outfeed_config: str = attribute(Kind.STRING, default="")

    def canonical(self, operands: Sequence[Shape]) -> Outfeed:
        # Protos always have it.
        if self.outfeed_shape is not None or not operands:
            return self
        return Outfeed(outfeed_shape=operands[0], outfeed_config=self.outfeed_config)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        value, token = operands
        _check_token(token)
        _check_feed(value)
        if self.outfeed_shape is not None and not agree(value, self.outfeed_shape):
            raise ShapeError(
                f"outfeed_shape {self.outfeed_shape} is not the shape of the value, {value}",
                hint=f"leave outfeed_shape out, or give {value.without_layout()}",
            )
        return TOKEN_SHAPE

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        value = operands[0]
        # An empty tuple is nothing to feed.
        if not isinstance(value, tuple) or value:
            context.outfeed(value, self.outfeed_shape or context.instruction.operands[0].shape)
        return TOKEN


@building
def outfeed(operand: XlaOp, shape_with_layout: Shape | None = None, outfeed_config: str = "") -> XlaOp:
    """Append a value to the device's outfeed.

    operand: an array, or a tuple of arrays. shape_with_layout: its shape, with the layout that the host wants.

    Gives a token. Raises ShapeError. Source: XlaBuilder::Outfeed.
    """
    return outfeed_with_token(operand, create_token(operand.builder), shape_with_layout, outfeed_config)


@building
def outfeed_with_token(
    operand: XlaOp, token: XlaOp, shape_with_layout: Shape | None = None, outfeed_config: str = ""
) -> XlaOp:
    """Append a value to the outfeed after ``token``; gives a token.

    Raises ShapeError. Source: XlaBuilder::OutfeedWithToken.
    """
    shape = shape_with_layout if shape_with_layout is not None else operand.shape
    return emit(Outfeed(outfeed_shape=shape, outfeed_config=outfeed_config), operand, token)


# -- channels --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnChannel(Transfer):
    """The attributes of operations on channels."""

    channel_id: int | None = attribute(Kind.INT64, default=None)
    is_host_transfer: bool = attribute(Kind.BOOL, default=False)


@operation("send", arity=2, documents=("Send", "SendWithToken", "SendToHost"))
class Send(_OnChannel, Start):
    """Put the first operand into a channel, to a recv of the same channel or to the host.

    Gives (operand, request, token) for send-done, which waits until the value has arrived at a recv; a send to the host
    waits here, for room in the host's queue. The operands may be in either order, as in XLA: the value is the operand
    that is no token.
    """

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        check_channel(self.channel_id)
        first, second = operands
        if not first.is_token:
            _check_token(second)
        else:
            _check_value(second)
        return make_tuple_shape([first.without_layout(), _REQUEST, TOKEN_SHAPE])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        first, second = operands
        value = second if first is TOKEN else first
        request = context.start_send(self.channel_id, value, is_host_transfer=self.is_host_transfer)
        return (first, np.asarray(request, np.uint32), TOKEN)


def _check_context(shape: Shape) -> None:
    parts = shape.tuple_shapes
    if len(parts) != 3 or not agree(parts[1], _REQUEST) or not parts[2].is_token:
        raise ShapeError(
            f"takes the context (value, u32[], token[]) that send or recv gives, got {shape}",
            hint="give what send or recv gave, as it is",
        )


@operation("send-done", arity=1, documents=("SendDone",))
class SendDone(_OnChannel, Done):
    """A token for a finished send: its value has arrived at a recv."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        check_channel(self.channel_id)
        _check_context(operands[0])
        return TOKEN_SHAPE

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        context.finish_send(int(operands[0][1]))
        return TOKEN


@operation("recv", arity=1, documents=("Recv", "RecvWithToken", "RecvFromHost"))
class Recv(_OnChannel, Start):
    """Ask for the next value of a channel; gives (room for it, request, token) for recv-done."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        check_channel(self.channel_id)
        _check_token(operands[0])
        result = need_declared(declared).without_layout()
        if not result.tuple_shapes:
            raise ShapeError(
                f"gives (value, u32[], token[]), not {result}", hint="declare (the value's shape, u32[], token[])"
            )
        if result.tuple_shapes[0].is_token:
            raise ShapeError("a token cannot be received", hint="the token comes with the value, as recv-done's second")
        return make_tuple_shape([result.tuple_shapes[0], _REQUEST, TOKEN_SHAPE])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        shape = context.shape.tuple_shapes[0]
        request = context.start_recv(self.channel_id, shape, is_host_transfer=self.is_host_transfer)
        return (zero_value(shape), np.asarray(request, np.uint32), TOKEN)


@operation("recv-done", arity=1, documents=("RecvDone",))
class RecvDone(_OnChannel, Done):
    """The value that a recv asked for, and a token; waits for it."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        check_channel(self.channel_id)
        _check_context(operands[0])
        return make_tuple_shape([operands[0].tuple_shapes[0].without_layout(), TOKEN_SHAPE])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return (context.finish_recv(int(operands[0][1])), TOKEN)


@building
def send(operand: XlaOp, channel_handle: int) -> XlaOp:
    """Send a value to a recv with the same channel, which must be one of its kind.

    Gives a token when the recv has begun and has the value. Raises ShapeError. Source: Operation semantics, Send.
    """
    return send_with_token(operand, create_token(operand.builder), channel_handle)


@building
def send_with_token(operand: XlaOp, token: XlaOp, channel_id: int) -> XlaOp:
    """Send a value after ``token``; gives a token. Raises ShapeError. Source: XlaBuilder::SendWithToken."""
    _check_value(operand.shape)
    return emit(SendDone(channel_id=channel_id), emit(Send(channel_id=channel_id), operand, token))


@building
def recv(builder: Builder, shape: Shape, channel_handle: int) -> XlaOp:
    """Wait for the value of ``shape`` that a send with the same channel sends, and give it.

    Raises ShapeError. Source: Operation semantics, Recv.
    """
    return get_tuple_element(recv_with_token(create_token(builder), shape, channel_handle), 0)


@building
def recv_with_token(token: XlaOp, shape: Shape, channel_id: int) -> XlaOp:
    """Receive a value after ``token``; gives (value, token). Raises ShapeError. Source: XlaBuilder::RecvWithToken."""
    context = make_tuple_shape([shape, _REQUEST, TOKEN_SHAPE])
    return emit(RecvDone(channel_id=channel_id), emit(Recv(channel_id=channel_id), token, shape=context))


@building
def send_to_host(operand: XlaOp, token: XlaOp, channel_id: int) -> XlaOp:
    """Send a value to the host after ``token``; gives a token. Raises ShapeError. Source: XlaBuilder::SendToHost."""
    _check_value(operand.shape)
    context = emit(Send(channel_id=channel_id, is_host_transfer=True), operand, token)
    return emit(SendDone(channel_id=channel_id, is_host_transfer=True), context)


@building
def recv_from_host(token: XlaOp, shape: Shape, channel_id: int) -> XlaOp:
    """Receive a value from the host after ``token``; gives (value, token).

    Raises ShapeError. Source: XlaBuilder::RecvFromHost.
    """
    room = make_tuple_shape([shape, _REQUEST, TOKEN_SHAPE])
    context = emit(Recv(channel_id=channel_id, is_host_transfer=True), token, shape=room)
    return emit(RecvDone(channel_id=channel_id, is_host_transfer=True), context)


# -- domains ---------------------------------------------------------------------------------------


@operation("domain", arity=1)
class Domain(Same, Forwarding, Distinct):
    """The operand, at the border between two shardings: ``exit`` on the operand's side, ``entry`` on the users'."""

    domain: tuple[Sharding | None, Sharding | None] = attribute(
        Kind.DOMAIN, default=(None, None), always=True, proto="domain_entry_sharding"
    )


@building
def domain(operand: XlaOp, entry: Sharding | None, exit: Sharding | None) -> XlaOp:
    """The operand, at the border from the sharding ``exit`` to the sharding ``entry``."""
    return emit(Domain(domain=(entry, exit)), operand)
