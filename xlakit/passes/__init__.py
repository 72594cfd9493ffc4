"""Passes: from HLO to better HLO that gives the same results. ``pipeline`` lists them in their order."""

from xlakit.passes.core.framework import ComputationPass, Pass, PassContext
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rule, RulePass, Rules

__all__ = ["ComputationPass", "Pass", "PassContext", "Rewriter", "Rule", "RulePass", "Rules"]
