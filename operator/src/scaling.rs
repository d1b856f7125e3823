//! How to become fewer without losing a request, and what a spec's quantities are.
//!
//! Both parts are pure. How many pods the load asks for is `lynx_governor::replicas`' decision; [`drain`] turns a lower
//! number in the spec into drained pods first and a lower number in the Deployment after.

pub mod drain;
pub mod quantity;
