"""Physics of MuJoCo's MJX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
from mujoco import mjx

from fuzz.library_programs.registry import program

_CONTACTS = "the solver of contacts iterates to a tolerance, and motions with contacts enlarge differences"

_PENDULUM = """<mujoco><option timestep="0.005" {option}/><worldbody>
<body pos="0 0 1"><joint name="a" type="hinge" axis="0 1 0" damping="0.1"/>
<geom type="capsule" size="0.05" fromto="0 0 0 0 0 -0.5" contype="0" conaffinity="0"/>
<body pos="0 0 -0.5"><joint name="b" type="hinge" axis="0 1 0"/>
<geom type="capsule" size="0.04" fromto="0 0 0 0 0 -0.4" contype="0" conaffinity="0"/></body></body>
</worldbody><actuator><motor joint="a" gear="2"/></actuator></mujoco>"""

_BALLS = """<mujoco><option timestep="0.005" iterations="4" ls_iterations="6"/><worldbody>
<geom type="plane" size="5 5 0.1"/>
<body pos="0 0 0.3"><freejoint/><geom type="sphere" size="0.1"/></body>
<body pos="0.05 0 0.6"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
</worldbody></mujoco>"""

_ARM = """<mujoco><option timestep="0.005" solver="Newton" iterations="6" cone="elliptic"/>
<default><geom density="800"/></default><worldbody><geom type="plane" size="3 3 .1"/>
<body name="a" pos="0 0 .6"><joint name="ball" type="ball" damping=".2"/>
<geom type="capsule" fromto="0 0 0 .3 0 0" size=".04"/>
<site name="s" pos=".1 0 0"/><body name="b" pos=".3 0 0">
<joint name="slide" type="slide" axis="1 0 0" range="-.1 .1" limited="true"/>
<geom type="box" size=".08 .05 .03"/><site name="t"/><body name="c" pos=".12 0 0">
<joint name="hinge" axis="0 1 0" stiffness="2"/>
<geom type="ellipsoid" size=".05 .04 .06"/></body></body></body>
<body name="free" pos=".4 .1 .3"><freejoint/><geom type="capsule" size=".06 .08"/></body></worldbody>
<tendon><spatial name="rope" range="0 .3" limited="true" stiffness="5"><site site="s"/><site site="t"/></spatial>
<fixed name="pair"><joint joint="slide" coef="1"/><joint joint="hinge" coef="-.5"/></fixed></tendon>
<equality><joint joint1="hinge" polycoef="0 0 0 0 0" solref=".1 1"/></equality>
<actuator><position joint="hinge" kp="3"/></actuator>
<sensor><accelerometer site="t"/><gyro site="s"/><framepos objtype="body" objname="c"/>
<tendonpos tendon="rope"/></sensor></mujoco>"""


def _model(text):
    model = mujoco.MjModel.from_xml_string(text)
    return mjx.put_model(model), mjx.make_data(model)


def _simulate(text, key, steps):
    model, data = _model(text)
    data = data.replace(qvel=data.qvel + 0.1 * jax.random.normal(key, data.qvel.shape))

    @jax.jit
    def step(data, control):
        data = mjx.step(model, data.replace(ctrl=control * jnp.ones_like(data.ctrl)))
        return data, (data.qpos, data.qvel)

    trace = []
    for n in range(steps):
        data, found = step(data, jnp.sin(0.1 * n))
        trace.append(found)
    return trace[-1], trace[0]


@program("mjx/pendulum_euler", jit=False, tolerance=1e-4, why="twenty steps of a double pendulum")
def pendulum_euler(key):
    return _simulate(_PENDULUM.format(option=""), key, 20)


@program("mjx/pendulum_implicit", jit=False, tolerance=1e-4, why="twenty steps of a double pendulum")
def pendulum_implicit(key):
    return _simulate(_PENDULUM.format(option='integrator="implicitfast"'), key, 20)


@program("mjx/pendulum_batch", tolerance=1e-4, why="ten steps of a double pendulum")
def pendulum_batch(key):
    model, data = _model(_PENDULUM.format(option='integrator="RK4"'))

    def run(q):
        data_q = data.replace(qpos=q)
        return jax.lax.scan(lambda d, _: (mjx.step(model, d), d.qpos), data_q, None, length=10)[1]

    return jax.vmap(run)(jax.random.normal(key, (4, 2)))


@program("mjx/contacts", jit=False, tolerance=1e-3, why=_CONTACTS)
def contacts(key):
    return _simulate(_BALLS, key, 12)


@program("mjx/gradient", tolerance=1e-3, why="derivatives through five steps of a double pendulum")
def gradient(key):
    model, data = _model(_PENDULUM.format(option=""))

    def final(control):
        d = jax.lax.scan(lambda d, u: (mjx.step(model, d.replace(ctrl=u[None])), None), data, control)[0]
        return (d.qpos**2).sum()

    return jax.value_and_grad(final)(jax.random.normal(key, (5,)))


@program("mjx/forward_kinematics", tolerance=1e-5 * 5, why="products of some rotations")
def forward_kinematics(key):
    model, data = _model(_PENDULUM.format(option=""))
    d = mjx.forward(model, data.replace(qpos=jax.random.normal(key, (2,)), qvel=jnp.ones(2)))
    return d.xpos, d.xmat, d.qacc, d.qfrc_bias


@program("mjx/tendons_sensors_and_equalities", jit=False, tolerance=1e-3, why=_CONTACTS)
def tendons_sensors_and_equalities(key):
    return _simulate(_ARM, key, 10)
