"""What stands in jax.scipy and in corners of jax.numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import jax.scipy.cluster.vq
import jax.scipy.integrate
import jax.scipy.interpolate
import jax.scipy.ndimage
import jax.scipy.spatial.transform
from jax import lax

from fuzz.library_programs.registry import program

_SERIES = "series and continued fractions, whose terms cancel"
_CONDITION = "small systems in float32"


@program("scientific/special_functions", tolerance=2e-4, why=_SERIES)
def special_functions(key):
    x = jax.random.uniform(key, (40,), minval=0.05, maxval=0.95)
    s = jsp.special
    return {
        "one": [f(x) for f in (s.i0, s.i0e, s.i1, s.i1e, s.digamma, s.gammaln, s.gamma)],
        "more": [f(x) for f in (s.erf, s.erfc, s.erfinv, s.expit, s.logit, s.log_ndtr, s.ndtr, s.ndtri, s.entr)],
        "rest": [f(x) for f in (s.spence, s.fresnel, s.exp1, s.expi, s.factorial, s.log_softmax, s.sici)],
        "two": [f(3 * x, x) for f in (s.betaln, s.xlogy, s.xlog1py, s.gammainc, s.gammaincc, s.kl_div, s.rel_entr)],
        "beta": s.betainc(2 * x, 3.0, x),
        "zeta": s.zeta(1.5 + x, 0.5 + x),
        "polygamma": s.polygamma(2, 1 + x),
        "hyp1f1": s.hyp1f1(1.2, 2.1, x),
        "multigammaln": s.multigammaln(x + 3, 3),
        "bernoulli": s.bernoulli(8),
        "bessel": s.bessel_jn(3 * x[:5], v=3),
        "harmonics": s.sph_harm_y(jnp.arange(3), jnp.arange(3), x[:3], x[3:6], n_max=3),
        "lse": s.logsumexp(x, b=jnp.where(x > 0.5, 1, -0.5), return_sign=True),
        "slopes": jax.vmap(jax.grad(lambda x: s.gammainc(2.0, x) + s.betainc(2.0, 3.0, x) + s.ndtri(x)))(x),
    }


@program("scientific/distributions", tolerance=2e-4, why=_SERIES)
def distributions(key):
    x = jax.random.uniform(key, (15,), minval=0.05, maxval=0.95)
    st = jsp.stats
    n = jnp.arange(15)
    return {
        "pdfs": [getattr(st, d).logpdf(x) for d in ("norm", "cauchy", "expon", "laplace", "logistic", "uniform")],
        "cdfs": [getattr(st, d).cdf(x) for d in ("norm", "cauchy", "expon", "laplace", "logistic", "uniform")],
        "ppf": [st.norm.ppf(x), st.logistic.ppf(x), st.cauchy.ppf(x), st.norm.isf(x), st.truncnorm.cdf(x, -1.0, 2.0)],
        "two": [
            st.beta.logpdf(x, 2, 3),
            st.beta.cdf(x, 2, 3),
            st.gamma.cdf(x, 2.5),
            st.chi2.sf(x, 3),
            st.t.logpdf(x, 4),
        ],
        "more": [st.pareto.logpdf(1 + x, 2), st.gumbel_r.cdf(x), st.wrapcauchy.logpdf(x, 0.3), st.vonmises.pdf(x, 1.5)],
        "discrete": [
            st.poisson.cdf(n, 4.0),
            st.binom.logpmf(n, 20, 0.3),
            st.geom.logpmf(n, 0.3),
            st.nbinom.logpmf(n, 5, 0.4),
            st.betabinom.logpmf(n, 20, 2.0, 3.0),
            st.bernoulli.logpmf(n % 2, 0.3),
            st.multinomial.logpmf(n[:3], 3, x[:3] / 2),
        ],
        "multivariate": st.multivariate_normal.logpdf(
            jnp.stack([x, x]).T, jnp.zeros(2), jnp.array([[2, 0.5], [0.5, 1]])
        ),
        "dirichlet": st.dirichlet.logpdf(jnp.array([0.2, 0.3, 0.5]), jnp.array([1.0, 2, 3])),
        "kde": st.gaussian_kde(x).evaluate(jnp.linspace(0, 1, 9)),
        "summary": [st.rankdata(x), st.mode(n % 4), st.sem(x)],
        "random": [
            jax.random.ball(key, 3),
            jax.random.rayleigh(key, 2.0, (4,)),
            jax.random.wald(key, 1.0, (4,)),
            jax.random.triangular(key, 0.0, 0.3, 1.0, (4,)),
            jax.random.lognormal(key, shape=(4,)),
            jax.random.orthogonal(key, 3),
            jax.random.generalized_normal(key, 1.5, (4,)),
            jax.random.maxwell(key, (4,)),
            jax.random.double_sided_maxwell(key, 1.0, 2.0, (4,)),
            jax.random.choice(key, 9, (4,), replace=False, p=jnp.arange(9) / 36),
            jax.random.loggamma(key, 0.3, (4,)),
        ],
    }


@program("scientific/signals", tolerance=1e-4, why="quotients of sums of transforms")
def signals(key):
    x = jax.random.normal(key, (128,)) + jnp.sin(jnp.arange(128) / 5)
    image = x[:120].reshape(10, 12)
    s = jsp.signal
    frequencies, times, z = s.stft(x, nperseg=32)
    kernel = jnp.array([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])
    return (
        frequencies, times, z, s.istft(z, nperseg=32)[1], s.welch(x, nperseg=64), s.csd(x, x[::-1], nperseg=32),
        s.detrend(x), s.fftconvolve(x, x[:17], mode="same"), s.convolve2d(image, kernel, mode="same"),
        s.correlate2d(image, image[:3, :3], mode="valid"), s.correlate(x, x[:9]),
        s.convolve(image, kernel, method="fft"), jnp.fft.hfft(z[:, 0]), jnp.fft.ihfft(x),
        jnp.fft.irfftn(jnp.fft.rfftn(image)), jnp.fft.fft2(image), jnp.fft.fftshift(image), jnp.fft.ifftn(image),
        jsp.fft.dct(x), jsp.fft.idct(x), jsp.fft.dctn(image), jsp.fft.idctn(image), jnp.fft.rfft(x[:97]),
        jnp.fft.ifft(x[:101]), jnp.unwrap(jnp.angle(z[:, 1])), jnp.fft.rfft(x, n=60), jnp.fft.irfft(z[:9, 0], n=15),
        jax.grad(lambda x: (s.welch(x, nperseg=32)[1] ** 0.5).sum())(x),
    )  # fmt: skip


@program("scientific/interpolation_and_space", tolerance=2e-4, why=_CONDITION)
def interpolation_and_space(key):
    x = jnp.sort(jax.random.uniform(key, (20,)))
    y = jnp.cumsum(jax.random.normal(key, (20,)))
    grid = jax.random.normal(key, (5, 6, 7))
    points = jax.random.uniform(key, (11, 3)) * 4
    axes = tuple(jnp.arange(float(n)) for n in grid.shape)
    turn = jsp.spatial.transform.Rotation.from_rotvec(points * 0.3)
    slerp = jsp.spatial.transform.Slerp.init(jnp.arange(11.0), turn)
    nearest = jsp.interpolate.RegularGridInterpolator(axes, grid, method="nearest")
    linear = jsp.interpolate.RegularGridInterpolator(axes, grid, bounds_error=False, fill_value=None)
    return (
        jnp.interp(jnp.linspace(-0.2, 1.2, 30), x, y, left=-1, period=None),
        jnp.interp(jnp.linspace(0, 3, 30), x, y, period=1.0), linear(points), nearest(points),
        jsp.ndimage.map_coordinates(grid, points.T, order=1, mode="mirror"),
        jsp.ndimage.map_coordinates(grid, points.T - 3, order=1, mode="wrap"),
        jsp.ndimage.map_coordinates(grid, points.T, order=0, mode="nearest"), turn.as_matrix(), turn.as_euler("xyz"),
        (turn * turn.inv()).as_rotvec(), turn.mean().as_quat(), turn.apply(points),
        slerp(jnp.linspace(0.0, 9, 7)).as_rotvec(), turn.magnitude(), jsp.integrate.trapezoid(y, x),
        jnp.polyfit(x, y, 3), jnp.polyval(jnp.array([1.0, -2, 3]), x),
        jnp.sort(jnp.abs(jnp.roots(jnp.array([1.0, -6, 11, -6]), strip_zeros=False))), jnp.gradient(y, 0.5),
        jsp.cluster.vq.vq(points, points[:4]), jnp.polydiv(jnp.array([1.0, 2, 3, 4]), jnp.array([1.0, 1])),
        jax.grad(lambda p: linear(p).sum())(points),
    )  # fmt: skip


@program("scientific/statistics_of_arrays")
def statistics_of_arrays(key):
    x = jax.random.normal(key, (9, 40))
    holes = jnp.where(x > 1, jnp.nan, x)
    whole = jax.random.randint(key, (50,), 0, 12)
    q = jnp.array([0.1, 0.5, 0.77])
    return (
        jnp.quantile(x, q, axis=1), jnp.nanquantile(holes, q, axis=0, method="nearest"), jnp.median(x, axis=0),
        jnp.nanmedian(holes, 1), jnp.percentile(x, 30.0, method="midpoint"), jnp.cov(x), jnp.corrcoef(x),
        jnp.histogram(x, 7)[0], jnp.histogram2d(x[0], x[1], 4)[0], jnp.digitize(x[0], jnp.linspace(-2, 2, 9)),
        jnp.bincount(whole, length=13), jnp.unique(whole, size=13, fill_value=-1, return_counts=True),
        jnp.intersect1d(whole[:25], whole[25:], size=12, fill_value=99),
        jnp.setdiff1d(jnp.arange(15), whole, size=6, fill_value=-1), jnp.isin(jnp.arange(15), whole),
        jnp.lexsort((x[0], whole[:40])), jnp.argpartition(x, 3, axis=1)[:, 3], jnp.partition(x, 5)[:, 5],
        jnp.nanargmax(holes, 1), jnp.nanvar(holes, 0), jnp.nancumsum(holes, 1), jnp.ptp(x, 0),
        jnp.average(x, 1, weights=jnp.arange(40.0)), jnp.searchsorted(jnp.sort(x[0]), x[1], method="compare_all"),
        jnp.searchsorted(jnp.sort(x[0]), x[1], side="right", method="sort"),
        jnp.nonzero(whole > 6, size=20, fill_value=-1), jnp.flatnonzero(x > 2, size=9, fill_value=0),
        jnp.count_nonzero(holes > 0, 1), jnp.apply_along_axis(lambda r: jnp.convolve(r, r[:3])[:5], 1, x),
        jnp.piecewise(x, [x < -1, x > 1], [-1.0, jnp.square, 0.5]),
        jnp.vectorize(jnp.dot, signature="(n),(n)->()")(x, x[0]), jnp.select([x < 0, x < 1], [x, x * 2], 7.0),
        jnp.diff(x, 3), jnp.trapezoid(x), jnp.tril_indices(4), jnp.diag_indices_from(x[:9, :9]),
        jnp.fill_diagonal(x[:9, :9], 5.0, inplace=False), jnp.vander(x[0, :4]), jnp.kron(x[:2, :2], x[:3, 0]),
        jnp.block([[x[:2, :2], x[:2, 2:4]], [x[4:5, :4]]]), jnp.rot90(x, 3), jnp.tile(x[:2], (2, 3)),
        jnp.repeat(x[0, :4], jnp.array([2, 0, 3, 1]), total_repeat_length=6), jnp.ldexp(x, 3), jnp.modf(x),
        jnp.hypot(x, 2), jnp.copysign(x, -1), jnp.logaddexp2(x, 0), jnp.float_power(jnp.abs(x), 0.3),
        jnp.divmod(whole, 5), jnp.gcd(whole, 12), jnp.lcm(whole, 4), jnp.nan_to_num(holes), jnp.heaviside(x, 0.5),
        jnp.cbrt(x), jnp.sinc(x), jnp.fmod(x, 0.3), jnp.remainder(x, -0.3),
    )  # fmt: skip


@program("scientific/matrices", tolerance=1e-3, why=_CONDITION)
def matrices(key):
    a, b = jax.random.normal(key, (2, 6, 6)) / 2 + 2 * jnp.eye(6)
    s = a @ a.T + jnp.eye(6)
    tall = jax.random.normal(key, (10, 4))
    n, sl = jnp.linalg, jsp.linalg
    lu, pivots, permutation = lax.linalg.lu(a)
    q, r = n.qr(tall)
    u, singular, v = n.svd(tall, full_matrices=False)
    return (
        sl.expm(a), jnp.real(sl.sqrtm(s)), sl.polar(a)[1], sl.cho_solve(sl.cho_factor(s), b), lu, pivots, permutation,
        sl.lu_solve(sl.lu_factor(a), b[0], trans=1), jnp.abs(q), jnp.abs(r), singular, (u * singular) @ v,
        n.pinv(tall), n.lstsq(tall, tall[:, 0])[0], n.matrix_power(a, -3), n.multi_dot([tall, a[:4], b]), n.cond(a),
        n.matrix_rank(tall), n.slogdet(a), n.tensorinv(a.reshape(2, 3, 6)), n.norm(a, "nuc"), n.norm(a, 2),
        n.norm(a, jnp.inf), sl.toeplitz(a[0], b[0]), sl.block_diag(a, tall), sl.hilbert(4), sl.pascal(4), sl.dft(4),
        sl.solve_triangular(a, b, lower=True, trans="T", unit_diagonal=True),
        sl.eigh_tridiagonal(jnp.arange(6.0), jnp.ones(5)),
        lax.linalg.tridiagonal_solve(jnp.ones(6).at[0].set(0), 4 * jnp.ones(6), jnp.ones(6).at[5].set(0), b),
        jnp.sort(jnp.abs(n.eigvals(a))), jnp.abs(sl.hessenberg(a)), sl.solve_sylvester(a, b, s),
        jnp.abs(n.qr(tall, mode="complete")[1]), jnp.abs(jnp.diag(sl.schur(s)[0])).sum(),
        jax.jacfwd(lambda a: n.inv(a)[0])(a), jax.grad(lambda a: jnp.abs(n.svd(a)[1]).sum())(a),
        jax.grad(lambda s: n.eigh(s)[0][0])(s), jax.vmap(n.cholesky)(jnp.stack([s, s + 1])),
        jax.vmap(n.det)(jnp.stack([a, b])), n.vecdot(a, b), n.cross(a[:, :3], b[:, :3]), jnp.trace(a @ b),
        jax.jvp(lambda a: jnp.abs(n.qr(a)[1]), (tall,), (jnp.ones_like(tall),)),
        jnp.tensordot(a.reshape(2, 3, 6), b.reshape(3, 2, 6), ((0, 1), (1, 0))),
    )  # fmt: skip
