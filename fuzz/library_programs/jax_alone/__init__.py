"""Programs of JAX alone: what is used of it beside what libraries use."""
