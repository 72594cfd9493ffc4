"""What all passes rest on: the framework, rules, and the builders of computations."""
