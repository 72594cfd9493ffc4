"""Quantum circuits and their derivatives with PennyLane."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import pennylane as qml

from fuzz.library_programs.registry import program


@program("pennylane/eigensolver", jit=False, x64=True, tolerance=1e-9, why="fifteen steps along gradients")
def eigensolver(key):
    terms = [qml.PauliZ(0) @ qml.PauliZ(1), qml.PauliX(2), qml.PauliY(1) @ qml.PauliX(3), qml.PauliZ(3)]
    energy = qml.Hamiltonian([0.5, -1.2, 0.3, 0.7], terms)

    @qml.qnode(qml.device("default.qubit", wires=4), interface="jax", diff_method="backprop")
    def circuit(weights):
        qml.StronglyEntanglingLayers(weights, wires=range(4))
        return qml.expval(energy)

    def step(weights, _):
        value, gradient = jax.value_and_grad(circuit)(weights)
        return weights - 0.1 * gradient, value

    weights = 6 * jax.random.uniform(key, (2, 4, 3))
    return jax.jit(lambda weights: jax.lax.scan(step, weights, None, length=15))(weights)


@program("pennylane/second_derivatives")
def second_derivatives(key):
    @qml.qnode(qml.device("default.qubit", wires=3), interface="jax")
    def circuit(angles):
        for wire in range(3):
            qml.RY(angles[wire], wires=wire)
        qml.CNOT(wires=[0, 1])
        qml.CRZ(angles[3], wires=[1, 2])
        qml.IsingXX(angles[4], wires=[0, 2])
        qml.QFT(wires=range(3))
        return qml.probs(wires=[0, 1, 2])

    angles = jax.random.normal(key, (5,))
    return circuit(angles), jax.jacobian(circuit)(angles), jax.hessian(lambda angles: circuit(angles)[3])(angles)


@program("pennylane/classifier", tolerance=1e-4, why="ten steps along gradients")
def classifier(key):
    @qml.qnode(qml.device("default.qubit", wires=3), interface="jax")
    def circuit(weights, x):
        qml.AngleEmbedding(x, wires=range(3))
        qml.BasicEntanglerLayers(weights, wires=range(3))
        return [qml.expval(qml.PauliZ(wire)) for wire in range(3)]

    x = jax.random.normal(key, (16, 3))
    wanted = (x.sum(1) > 0).astype(jnp.float32)

    def loss(weights):
        scores = sum(jax.vmap(lambda x: circuit(weights, x))(x))
        return optax.sigmoid_binary_cross_entropy(scores, wanted).mean()

    def step(weights, _):
        value, gradient = jax.value_and_grad(loss)(weights)
        return weights - 0.3 * gradient, value

    return jax.lax.scan(step, jax.random.normal(key, (2, 3)), None, length=10)


@program("pennylane/noise", jit=False)
def noise(key):
    @jax.jit
    @qml.qnode(qml.device("default.mixed", wires=2), interface="jax")
    def circuit(chance):
        qml.Hadamard(0)
        qml.CNOT([0, 1])
        qml.DepolarizingChannel(chance, wires=0)
        qml.AmplitudeDamping(chance / 2, wires=1)
        return qml.density_matrix(wires=[0, 1])

    chance = 0.2 + 0.1 * jax.random.uniform(key)
    return circuit(chance), jax.jit(jax.grad(lambda chance: circuit(chance)[0, 3].real))(chance)
