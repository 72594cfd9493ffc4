"""Algebraic simplification: tables of rewrite rules by kind of operation, constant folding, common subexpression
elimination, and dead code elimination.
"""
