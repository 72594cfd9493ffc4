"""Matrix products of any element types and strides: packed, blocked for the caches, tiled for registers.

The result is divided into tasks, rectangles of ``task_rows`` x ``task_columns``. Within a task the blocking is BLIS's
(nc is task_columns):

    if ``ahead``: pack the right operand of the task: kc x nc for each block of k, in slivers of nr columns
    for each block of mc rows:
        for each block of kc steps of k: pack mc x kc of the left operand, and kc x nc of the right one unless ``ahead``
            for each micro-tile, mr x nr sums in registers: multiply kc steps, and add to the sums

        k ->               nr
      +------+     k  +--+--+--+      +--+--+--+
    mr| left |     |  |  |  |  |  =   |  |##|  | mr     ##: a micro-tile; a sliver of the right operand
      +------+     v  |  |  |  |      +--+--+--+        stays in the first-level cache while the rows
      |      |        +--+--+--+      |  |  |  |        of the left one pass by
      +------+                        +--+--+--+

Consecutive tasks of one thread on the same columns share the packed right operand; with ``packs_once`` all tasks do,
and a phase before them packs it. The order of a sum does not depend on the thread.

The modules, in the order in which a product passes through them:

- ``product.py``: the product: operands (``operands.py``) and the directions through the result
- ``engine.py``: the types of packed elements and of sums, and the micro-tile, chosen by element types and processor
- ``blocking.py``: the plan, with ``tasks.py``; ``check.py``: the preconditions of code generation
- ``driver.py``: the loops over tasks and blocks. ``areas.py`` divides their scratch, ``address_tables.py`` writes
  tables of addresses in it, ``bf16_range.py`` decides whether products of BF16 can be subnormal
- packing, in the order in which the micro-kernel reads: the left operand in ``rows.py`` or, where a lane takes one step
  of k at a time, in ``panels.py``; the right one in ``slivers.py``
- ``packed_once.py``: the phase that packs the right operand for all tasks
- ``macro_kernel.py``: the loops over the micro-tiles of a packed block
- ``micro_kernel.py``, ``amx.py``: the sums of one micro-tile, in vector registers or in AMX's tile registers
- ``store.py``: rounds and stores sums; ``epilogue.py`` calls a function on results while they are in the cache
"""
