//! A registration that the process may not make. Run as a user without capabilities, under `ulimit -l 64`.

use std::error::Error;

use crate::support::Machine;
use lynx_verbs::{RegisterError, Staging};

#[test]
#[ignore = "needs an RDMA device, and no rights: make test-rdma"]
fn a_registration_over_the_limit_names_the_limit_and_one_below_it_works() {
    let machine = Machine::new();
    let small = Staging::new(&machine.domain, 16 << 10).unwrap();
    assert_eq!(small.len(), 16 << 10);
    let error = Staging::new(&machine.domain, 1 << 20).unwrap_err();
    println!("{error}: {}", error.source().unwrap());
    assert!(matches!(error, RegisterError::Limit { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.starts_with("1048576 bytes can't be registered for RDMA: RLIMIT_MEMLOCK is 65536 bytes, without CAP_IPC_LOCK."),
        "{text}"
    );
}
