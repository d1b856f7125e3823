//! How many replicas: what load asks for, and how to become fewer without losing a request.
//!
//! Both parts are pure. [`autoscale`] turns load into a number for the spec; [`drain`] turns a lower number in the spec
//! into drained pods first and a lower number in the Deployment after.

pub mod autoscale;
pub mod drain;
