"""Differential equations with diffrax: ordinary, stochastic, controlled, stiff; adaptive steps, adjoints, events."""

from __future__ import annotations

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx

from fuzz.library_programs.registry import program

_ADAPTIVE = "step sizes follow from errors near the rounding of float32, and steps that differ give results that do"
_ADAPTIVE_64 = "step sizes follow from estimated errors; results are as near as the solver's tolerance asks"


def _lotka(t, y, args):
    a, b = args
    return jnp.stack([a * y[0] - y[0] * y[1], y[0] * y[1] - b * y[1]])


def _solve(solver, key, controller=None, steps=None, **more):
    y0 = 1 + jax.random.uniform(key, (2,))
    return dfx.diffeqsolve(
        dfx.ODETerm(_lotka),
        solver,
        0.0,
        2.0,
        0.02,
        y0,
        args=(1.1, 0.9),
        adjoint=dfx.RecursiveCheckpointAdjoint(),
        stepsize_controller=controller or dfx.ConstantStepSize(),
        max_steps=steps or 4096,
        **more,
    )


def _explicit(solver):
    def run(key):
        constant = _solve(solver(), key, saveat=dfx.SaveAt(ts=jnp.linspace(0.1, 2, 5)))
        return constant.ys, constant.stats["num_steps"]

    return run


for _name in ("Euler", "Heun", "Midpoint", "Ralston", "Bosh3", "Tsit5", "Dopri5", "Dopri8"):
    program(f"diffrax/{_name.lower()}")(_explicit(getattr(dfx, _name)))


@program("diffrax/adaptive_tsit5", tolerance=2e-4, why=_ADAPTIVE)
def adaptive_tsit5(key):
    return _solve(
        dfx.Tsit5(), key, controller=dfx.PIDController(1e-4, 1e-6), saveat=dfx.SaveAt(ts=jnp.linspace(0, 2, 9))
    ).ys


@program("diffrax/adaptive_dopri8_x64", x64=True, tolerance=1e-7, why=_ADAPTIVE_64)
def adaptive_dopri8_x64(key):
    return _solve(
        dfx.Dopri8(), key, controller=dfx.PIDController(1e-9, 1e-9), saveat=dfx.SaveAt(ts=jnp.linspace(0, 2, 9))
    ).ys


@program("diffrax/dense_output", tolerance=1e-4, why=_ADAPTIVE)
def dense_output(key):
    solution = _solve(
        dfx.Tsit5(), key, controller=dfx.PIDController(1e-4, 1e-6), saveat=dfx.SaveAt(dense=True), steps=256
    )
    return jax.vmap(solution.evaluate)(jnp.linspace(0, 2, 17))


def _stiff(solver, key):
    def robertson(t, y, k):
        f0 = -k[0] * y[0] + k[2] * y[1] * y[2]
        f1 = k[0] * y[0] - k[1] * y[1] ** 2 - k[2] * y[1] * y[2]
        return jnp.stack([f0, f1, k[1] * y[1] ** 2])

    y0 = jnp.array([1.0, 0.0, 0.0])
    return dfx.diffeqsolve(
        dfx.ODETerm(robertson),
        solver,
        0.0,
        100.0,
        2e-4,
        y0,
        args=jnp.array([0.04, 3e7, 1e4]),
        saveat=dfx.SaveAt(ts=jnp.array([1.0, 10.0, 100.0])),
        stepsize_controller=dfx.PIDController(1e-6, 1e-8),
        max_steps=4000,
    ).ys


@program("diffrax/stiff_kvaerno5", x64=True, tolerance=1e-5, why=_ADAPTIVE_64)
def stiff_kvaerno5(key):
    return _stiff(dfx.Kvaerno5(), key)


@program("diffrax/stiff_kvaerno3", x64=True, tolerance=1e-4, why=_ADAPTIVE_64)
def stiff_kvaerno3(key):
    return _stiff(dfx.Kvaerno3(), key)


@program("diffrax/implicit_euler", tolerance=1e-3, why="Newton's iterations end at a tolerance of 1e-5")
def implicit_euler(key):
    import optimistix as optx

    return _solve(dfx.ImplicitEuler(root_finder=optx.Newton(1e-5, 1e-5)), key).ys


@program("diffrax/kencarp4_imex", tolerance=1e-3, why=_ADAPTIVE)
def kencarp4_imex(key):
    term = dfx.MultiTerm(dfx.ODETerm(lambda t, y, a: -jnp.sin(y)), dfx.ODETerm(lambda t, y, a: -5 * y))
    y0 = jax.random.normal(key, (4,))
    return dfx.diffeqsolve(
        term, dfx.KenCarp4(), 0.0, 1.0, 0.05, y0, stepsize_controller=dfx.PIDController(1e-4, 1e-5)
    ).ys


def _gradient(adjoint):
    def run(key):
        def loss(args, y0):
            solution = dfx.diffeqsolve(
                dfx.ODETerm(_lotka),
                dfx.Tsit5(),
                0.0,
                1.0,
                0.05,
                y0,
                args=args,
                adjoint=adjoint(),
                saveat=dfx.SaveAt(t1=True),
                max_steps=64,
            )
            return (solution.ys**2).sum()

        return jax.value_and_grad(loss, (0, 1))((jnp.float32(1.1), jnp.float32(0.9)), 1 + jax.random.uniform(key, (2,)))

    return run


program("diffrax/gradient_checkpoint")(_gradient(dfx.RecursiveCheckpointAdjoint))
program("diffrax/gradient_direct")(_gradient(dfx.DirectAdjoint))
program("diffrax/gradient_backsolve", tolerance=1e-4, why="solved backwards with steps of its own")(
    _gradient(dfx.BacksolveAdjoint)
)


@program("diffrax/forward_mode")
def forward_mode(key):
    def final(y0):
        term = dfx.ODETerm(_lotka)
        return dfx.diffeqsolve(term, dfx.Heun(), 0.0, 1.0, 0.05, y0, args=(1.1, 0.9), adjoint=dfx.ForwardMode()).ys

    return jax.jacfwd(final)(1 + jax.random.uniform(key, (2,)))


@program(
    "diffrax/sde_euler_maruyama",
    tolerance=2e-4,
    why="normal numbers from the inverse error function, summed over levels of a tree",
)
def sde_euler_maruyama(key):
    def run(key):
        path = dfx.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(3,), key=key)
        term = dfx.MultiTerm(
            dfx.ODETerm(lambda t, y, a: -y), dfx.ControlTerm(lambda t, y, a: 0.3 * jnp.diag(1 + y), path)
        )
        return dfx.diffeqsolve(
            term, dfx.EulerHeun(), 0.0, 1.0, 0.05, jnp.ones(3), saveat=dfx.SaveAt(ts=jnp.linspace(0, 1, 5))
        ).ys

    return jax.vmap(run)(jax.random.split(key, 6))


@program(
    "diffrax/sde_shark",
    tolerance=5e-4,
    why="normal numbers from the inverse error function, summed over levels of a tree",
)
def sde_shark(key):
    path = dfx.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(2,), key=key, levy_area=dfx.SpaceTimeLevyArea)
    term = dfx.MultiTerm(
        dfx.ODETerm(lambda t, y, a: -jnp.sin(y)), dfx.ControlTerm(lambda t, y, a: jnp.eye(2) * 0.2, path)
    )
    return dfx.diffeqsolve(
        term, dfx.ShARK(), 0.0, 1.0, 0.1, jnp.ones(2), saveat=dfx.SaveAt(steps=True), max_steps=16
    ).ys


@program("diffrax/neural_cde", tolerance=1e-4, why="gradients through ten steps of a network")
def neural_cde(key):
    ts = jnp.linspace(0, 1, 12)
    xs = jnp.cumsum(jax.random.normal(key, (12, 3)) / 4, 0).at[4, 1].set(jnp.nan)
    field = eqx.nn.MLP(4, 12, 8, 1, final_activation=jnp.tanh, key=key)
    parameters, static = eqx.partition(field, eqx.is_array)

    def loss(parameters):
        field = eqx.combine(parameters, static)
        control = dfx.CubicInterpolation(ts, dfx.backward_hermite_coefficients(ts, xs))
        term = dfx.ControlTerm(lambda t, y, a: field(y).reshape(4, 3), control).to_ode()
        return (
            dfx.diffeqsolve(
                term,
                dfx.Tsit5(),
                0.0,
                1.0,
                0.1,
                jnp.ones(4),
                max_steps=16,
            ).ys
            ** 2
        ).sum()

    return jax.value_and_grad(loss)(parameters)


@program("diffrax/neural_ode_batch", tolerance=1e-3, why=_ADAPTIVE)
def neural_ode_batch(key):
    field = eqx.nn.MLP(2, 2, 16, 2, activation=jax.nn.softplus, key=key)
    parameters, static = eqx.partition(field, eqx.is_array)
    y0 = jax.random.normal(key, (5, 2))

    def loss(parameters):
        field = eqx.combine(parameters, static)

        def one(y0):
            term = dfx.ODETerm(lambda t, y, a: field(y))
            controller = dfx.PIDController(1e-3, 1e-6)
            return dfx.diffeqsolve(
                term,
                dfx.Tsit5(),
                0.0,
                1.0,
                0.1,
                y0,
                stepsize_controller=controller,
                saveat=dfx.SaveAt(ts=jnp.linspace(0, 1, 4)),
                max_steps=64,
            ).ys

        return (jax.vmap(one)(y0) ** 2).mean()

    return jax.value_and_grad(loss)(parameters)


@program(
    "diffrax/event_bouncing_ball",
    tolerance=1e-3,
    why="the root finder for the time of the event ends at a tolerance of 1e-4",
)
def event_bouncing_ball(key):
    import optimistix as optx

    def field(t, y, a):
        return jnp.stack([y[1], -9.8 + 0 * y[0]])

    event = dfx.Event(lambda t, y, args, **k: y[0], optx.Newton(1e-4, 1e-4, optx.rms_norm))
    y0 = jnp.stack([5 + jax.random.uniform(key), 0.0])
    s = dfx.diffeqsolve(
        dfx.ODETerm(field),
        dfx.Tsit5(),
        0.0,
        jnp.inf,
        0.05,
        y0,
        event=event,
        stepsize_controller=dfx.PIDController(1e-4, 1e-4),
    )
    return s.ys, s.ts


@program("diffrax/symplectic")
def symplectic(key):
    term = (dfx.ODETerm(lambda t, p, a: p), dfx.ODETerm(lambda t, q, a: -jnp.sin(q)))
    q0 = jax.random.normal(key, (3,))
    saveat = dfx.SaveAt(ts=jnp.linspace(0, 5, 6))
    return dfx.diffeqsolve(term, dfx.SemiImplicitEuler(), 0.0, 5.0, 0.02, (q0, jnp.zeros(3)), saveat=saveat).ys


@program("diffrax/steady_state", x64=True, tolerance=1e-6, why=_ADAPTIVE_64)
def steady_state(key):
    target = jax.random.normal(key, (3,), jnp.float64)

    def field(t, y, target):
        return target - y

    event = dfx.Event(dfx.steady_state_event(1e-8, 1e-8))

    def loss(target):
        return dfx.diffeqsolve(
            dfx.ODETerm(field),
            dfx.Tsit5(),
            0.0,
            jnp.inf,
            0.1,
            jnp.zeros(3),
            args=target,
            event=event,
            adjoint=dfx.ImplicitAdjoint(),
            stepsize_controller=dfx.PIDController(1e-8, 1e-8),
            max_steps=None,
        ).ys.sum()

    return jax.value_and_grad(loss)(target)


@program("diffrax/interpolations")
def interpolations(key):
    ts = jnp.linspace(0, 1, 8)
    ys = jax.random.normal(key, (8, 3)).at[2, 0].set(jnp.nan)
    linear = dfx.LinearInterpolation(ts, dfx.linear_interpolation(ts, ys))
    cubic = dfx.CubicInterpolation(ts, dfx.backward_hermite_coefficients(ts, ys))
    at = jnp.linspace(0, 1, 13)
    return (
        jax.vmap(linear.evaluate)(at),
        jax.vmap(cubic.evaluate)(at),
        jax.vmap(cubic.derivative)(at),
        dfx.rectilinear_interpolation(ts, ys),
    )


@program("diffrax/more_solvers", x64=True, tolerance=1e-7, why=_ADAPTIVE_64)
def more_solvers(key):
    stiff = dfx.ODETerm(lambda t, y, a: jnp.stack([a * (y[1] - y[0]), y[0] * (1 - y[1]) - 0.1 * t]))
    y0, a = jax.random.uniform(key, (2,), jnp.float64), 3.0
    control = dfx.ClipStepSizeController(dfx.PIDController(1e-7, 1e-9), step_ts=jnp.array([0.3, 0.7]))
    found = [
        dfx.diffeqsolve(stiff, solver, 0.0, 1.0, 0.01, y0, a, stepsize_controller=control).ys
        for solver in (dfx.Kvaerno4(), dfx.HalfSolver(dfx.Heun()), dfx.Bosh3())
    ]
    fixed = [
        dfx.diffeqsolve(stiff, solver, 0.0, 1.0, 0.05, y0, a, saveat=dfx.SaveAt(steps=True), max_steps=24).ys
        for solver in (dfx.LeapfrogMidpoint(), dfx.ReversibleHeun(), dfx.Ralston())
    ]
    split = dfx.MultiTerm(dfx.ODETerm(lambda t, y, a: jnp.sin(a * t) * y), dfx.ODETerm(lambda t, y, a: -y))
    control = dfx.PIDController(1e-7, 1e-9)
    mixed = dfx.diffeqsolve(split, dfx.Sil3(), 0.0, 1.0, 0.05, y0, a, stepsize_controller=control).ys
    sums = dfx.SubSaveAt(ts=jnp.linspace(0, 1, 5), fn=lambda t, y, a: y.sum() + t)
    saved = dfx.SaveAt(subs=[dfx.SubSaveAt(t1=True), sums])
    parts = dfx.diffeqsolve(stiff, dfx.Tsit5(), 0.0, 1.0, 0.1, y0, a, saveat=saved).ys
    return found, fixed, mixed, parts


@program("diffrax/langevin_and_levy_areas", tolerance=1e-4, why="fifty steps of a stochastic equation")
def langevin_and_levy_areas(key):
    def path(area):
        return dfx.VirtualBrownianTree(0.0, 1.0, 1e-3, (2,), key, levy_area=area)

    drift = dfx.ODETerm(lambda t, y, a: -y + jnp.sin(t))
    found = []
    for solver in (dfx.SRA1(), dfx.SlowRK(), dfx.SEA()):
        noise = dfx.ControlTerm(lambda t, y, a: jnp.array([[0.3, 0.0], [0.1, 0.2]]), path(dfx.SpaceTimeLevyArea))
        found.append(dfx.diffeqsolve(dfx.MultiTerm(drift, noise), solver, 0.0, 1.0, 0.05, jnp.ones(2)).ys)
    for solver in (dfx.ItoMilstein(), dfx.StratonovichMilstein()):
        noise = dfx.ControlTerm(lambda t, y, a: lx.DiagonalLinearOperator(0.3 * y), path(dfx.BrownianIncrement))
        found.append(dfx.diffeqsolve(dfx.MultiTerm(drift, noise), solver, 0.0, 1.0, 0.05, jnp.ones(2)).ys)
    langevin = dfx.MultiTerm(
        dfx.UnderdampedLangevinDriftTerm(1.0, 0.5, lambda x, _: jnp.tanh(x)),
        dfx.UnderdampedLangevinDiffusionTerm(1.0, 0.5, path(dfx.SpaceTimeTimeLevyArea)),
    )
    state = (jnp.ones(2), jnp.zeros(2))
    solvers = (dfx.ShOULD(), dfx.QUICSORT(), dfx.ALIGN(0.1))
    return found, [dfx.diffeqsolve(langevin, s, 0.0, 1.0, 0.05, state).ys for s in solvers]
