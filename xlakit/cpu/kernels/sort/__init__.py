"""Sorts and TopK.

plan.py           the choice of method for the rows of a sort, which the others carry out
sort.py           the kernels of sorts: ranks.py short rows, quick.py and parallel_radix.py long ones in the order of
                  integers, merge.py those with a comparator
top_k.py          the first elements of rows; top_k_common.py its loops
keys.py           elements as integers in their order; equal_keys.py those that are equal and have other bits
record.py         what is moved: keys and numbers in one integer
rows.py           rows as code accesses them; common.py loops that sorts of one type share

A condition under which another method is faster belongs to plan.py, a new order of elements to keys.py.
"""
