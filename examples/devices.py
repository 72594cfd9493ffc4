"""Two devices: buffers that live there, programs that run while Python goes on, and memory that is used again.

python examples/devices.py
"""

import numpy as np

import xlakit as xla

client = xla.Client(devices=2)
first, second = client.devices()

# Cups of tea cool, minute by minute. The result may be computed in the memory of the argument.
minute = xla.HloModule.from_text("""
HloModule minute, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY minute {
  tea = f32[1000] parameter(0)
  room = f32[] constant(20)
  rooms = f32[1000] broadcast(room), dimensions={}
  rate = f32[] constant(0.05)
  rates = f32[1000] broadcast(rate), dimensions={}
  warmer = f32[1000] subtract(tea, rooms)
  lost = f32[1000] multiply(warmer, rates)
  ROOT later = f32[1000] subtract(tea, lost)
}
""")

# The same program on each device. Calls return at once; each device does what it is asked in that order.
programs = [client.compile(minute, device_assignment=[device]) for device in client.devices()]
cups = [first.put(np.linspace(60, 90, 1000, dtype=np.float32)), second.put(np.full(1000, 75, np.float32))]
start, memory = cups[0], [cup.unsafe_buffer_pointer() for cup in cups]
for _ in range(30):
    cups = [program.execute([cup]) for program, cup in zip(programs, cups, strict=True)]

# Reading waits for what is read.
for device, cup in zip(client.devices(), cups, strict=True):
    print(f"{device}: {np.mean(cup):.2f} degrees after half an hour")

# No minute has taken memory of its own: each gave its buffer to the next.
print("in the same memory:", [cup.unsafe_buffer_pointer() for cup in cups] == memory)

# What was given away cannot be used any more; the error says where it went.
try:
    np.asarray(start)
except xla.DeletedBufferError as error:
    print(error)

# Programs read buffers of their own device; what is on another one is copied there.
builder = xla.XlaBuilder("difference")
shape = xla.make_shape(xla.F32, (1000,))
xla.sub(xla.parameter(builder, 0, shape), xla.parameter(builder, 1, shape))
difference = client.compile(builder.build(), device_assignment=[second])
apart = difference.execute([cups[0].copy_to_device(second), cups[1]])
print(f"between {np.min(apart):.2f} and {np.max(apart):.2f} degrees apart")

# Waits for what the devices have to do, and ends their threads. `with xla.Client() as client:` does the same.
client.close()
