"""Special functions of floating point arrays, in HLO: series, continued fractions and loops over whole arrays.

Operands of one function have one shape and type. Results are calculated in F64 and rounded to that type once.
"""

from xlakit.lib.special.bessel import bessel_i0e as bessel_i0e, bessel_i1e as bessel_i1e
from xlakit.lib.special.error_functions import erf_inv as erf_inv, erfc as erfc
from xlakit.lib.special.gamma import digamma as digamma, lgamma as lgamma
from xlakit.lib.special.incomplete_beta import regularized_incomplete_beta as regularized_incomplete_beta
from xlakit.lib.special.incomplete_gamma import (
    igamma as igamma,
    igamma_grad_a as igamma_grad_a,
    igammac as igammac,
    random_gamma_grad as random_gamma_grad,
)
from xlakit.lib.special.next_after import next_after as next_after
from xlakit.lib.special.zeta import polygamma as polygamma, zeta as zeta
