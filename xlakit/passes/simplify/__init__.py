"""Algebraic simplification:

tables of rules by kind of operation, and what finds equal, constant and unused instructions.
"""
