"""Delta debugging of modules: the smallest module found for which a property still holds."""
