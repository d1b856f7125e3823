//! The TCP driver that carries out what the protocol decides.
