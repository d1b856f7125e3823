//! How many pods there are, and how to become fewer without losing a request.
//!
//! All of it is pure. [`autoscaler`] asks `lynx_governor::replicas` how many pods the load wants; [`drain`] turns a lower
//! number in the spec into drained pods first and a lower number in the Deployment after.

pub mod autoscaler;
pub mod drain;
pub mod pods;
pub mod quantity;
