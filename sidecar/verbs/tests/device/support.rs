//! A device, and two sides on it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::allow_attributes,
    dead_code,
    reason = "helpers of tests"
)]

use std::time::Duration;

use lynx_verbs::{
    Completion, CompletionQueue, Domain, GidEntry, Library, Path, QueuePair, Ring, Sizes, Staging,
    Target, Wakeups, Write, choose,
};
use tokio::time::timeout;

/// What every queue pair of the tests takes.
pub(crate) const SIZES: Sizes = Sizes {
    writes: 16,
    receives: 16,
    inline: 64,
};

/// Where the virtual machine's first interface is.
const ADDRESS: &str = "192.168.77.1";

/// A device with a GID to send from.
pub(crate) struct Machine {
    pub(crate) verbs: Library,
    pub(crate) domain: Domain,
    pub(crate) gid: GidEntry,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let library = Library::open().unwrap();
        let gids = library.gids().unwrap();
        let gid = choose(&gids, None, ADDRESS.parse().unwrap(), None).unwrap();
        let context = library.device(&gid.device).unwrap();
        Self {
            domain: Domain::new(&context).unwrap(),
            gid: gid.clone(),
            verbs: library,
        }
    }
}

/// One side of links.
pub(crate) struct Side {
    pub(crate) queue: CompletionQueue,
    pub(crate) staging: Staging,
    pub(crate) ring: Ring,
}

impl Side {
    pub(crate) fn new(machine: &Machine, bytes: usize) -> Self {
        Self {
            queue: CompletionQueue::new(machine.domain.context(), 64).unwrap(),
            staging: Staging::new(&machine.domain, bytes).unwrap(),
            ring: Ring::new(&machine.domain, bytes).unwrap(),
        }
    }

    pub(crate) fn pair(&self, machine: &Machine) -> QueuePair {
        let first_packet = 0x00ab_cdef;
        QueuePair::new(
            &machine.domain,
            &self.queue,
            &machine.gid,
            SIZES,
            first_packet,
        )
        .unwrap()
    }
}

pub(crate) fn connect(one: &QueuePair, other: &QueuePair, path: &Path) {
    one.connect(&other.endpoint(), path).unwrap();
    other.connect(&one.endpoint(), path).unwrap();
}

/// A write of 64 bytes that isn't announced.
pub(crate) fn write(work: u64, staging: &Staging, to: Target) -> Write<'_> {
    Write {
        work,
        then: None,
        from: staging.part(0..64),
        to,
        immediate: None,
        signalled: true,
    }
}

/// The next so many completions, waited for as a task of tokio does.
pub(crate) async fn until(queue: &CompletionQueue, count: usize) -> Vec<Completion> {
    let wakeups = Wakeups::new(queue.clone()).unwrap();
    let mut found = Vec::new();
    let collect = async {
        while found.len() < count {
            wakeups.next(&mut found).await.unwrap();
        }
    };
    let waited = timeout(Duration::from_secs(60), collect).await;
    assert!(
        waited.is_ok(),
        "{count} completions were waited for: {found:?}"
    );
    assert_eq!(found.len(), count, "{found:?}");
    found
}
