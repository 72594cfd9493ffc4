"""Matrix products of any element types, from and to any strides: packed, blocked for the caches, tiled for registers.

The result is divided into tasks, rectangles of ``task_rows`` x ``task_columns``. Within a task, blocking is that of
BLIS (nc is task_columns):

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

Consecutive tasks of one thread on the same columns pack the right operand once. The order of a sum does not depend on
the thread.

In the order in which a product passes through them:

- ``product.py``: the product: operands (``operands.py``) and the directions through the result
- ``engine.py``: the types of packed elements and of sums, and the micro-tile, chosen by element types and processor
- ``blocking.py``: the plan; ``check.py`` what code generation relies on
- ``driver.py``: the loops over tasks and blocks. ``areas.py`` has their scratch, ``address_tables.py`` the tables of
  addresses in it, ``bf16_range.py`` whether products of BF16 can be subnormal
- ``packing.py``: operands copied as the micro-kernel reads them
- ``macro_kernel.py``: the loops over the micro-tiles of a packed block
- ``micro_kernel.py``, ``amx.py``: the sums of one micro-tile, in vector registers or in AMX's tile registers
- ``store.py``: sums as results; ``epilogue.py`` calls what takes them while they are in the cache
"""
