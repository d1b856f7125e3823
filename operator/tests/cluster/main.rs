//! The operator against a real API server, with its controllers, and without nodes: pods are made and never run, so tests
//! play the kubelet and the agents.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(clippy::panic, reason = "helpers of tests")]

mod adapter;
mod agents;
mod autoscaling;
mod chaos;
mod chart;
mod gate;
mod harness;
mod leaders;
mod objects;
mod player;
mod rollout;
mod scale;
mod security;
mod topology;
