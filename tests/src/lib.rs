//! What needs more than one room: layering, simulation, real processes.
