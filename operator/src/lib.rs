//! The operator: LynxDeployments into pods, policies and status.
//!
//! Data flows one way. [`reconcile`] takes an object and what [`caches`] have of it, [`validate`] refuses what can't work, [`build`]
//! turns the spec into objects (pure), and reconcile applies them and writes the [`status`]. Beside that runs one loop
//! ([`control`]) over what agents report on their [`streams`]: it asks `lynx-governor` for
//! the anchor's width and the pools' sizes, and [`scaling`] carries the latter out.
//!
//! Every replica watches and answers; only the one that holds the Lease writes. The agents work without all of this: they
//! keep the last policy and the last peers.

pub mod build;
pub mod caches;
pub mod certificates;
pub mod clock;
pub mod config;
pub mod control;
pub mod crd;
pub mod leadership;
pub mod metrics;
pub mod probe;
pub mod reconcile;
pub mod requests;
pub mod rollout;
pub mod run;
pub mod scaling;
pub mod status;
pub mod streams;
pub mod validate;
pub mod web;
