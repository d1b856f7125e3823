//! The two controllers with memory: which anchor width each class of links gets, and how many pods each pool.
//!
//! [`width`] follows what links carry, [`replicas`] follows the load. Both are functions of what was reported and of the
//! moment it is asked at; who reports, and what is done about an answer, is the operator's business. That is why both
//! can be run over days of invented links and loads in a second, and why their promises are held by such runs.
//!
//! Why not in `lynx-policy`: agents use that too, and it has no memory. Why not in the operator: its tests are to be
//! built without a Kubernetes client.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod replicas;
pub mod width;
