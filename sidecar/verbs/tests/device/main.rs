//! Verbs on a real device: Soft-RoCE in a virtual machine, which `make test-rdma` starts, with `rxe0` on `veth0` (192.168.77.1) and
//! `rxe1` on `veth1`. Both sides of a link are in this process.
#![cfg(test)]

mod links;
mod support;
mod unprivileged;
