//! Two queue pairs of one link on a real device (Soft-RoCE in a virtual machine, or a card): what a link is made of, and how it ends.

use std::os::fd::{AsFd, OwnedFd};

use crate::support::{self, Machine, SIZES, Side, until};
use lynx_verbs::{
    Choice, CompletionQueue, DmaBuf, Failure, Outcome, Path, QueuePair, RegisterError, Ring,
    Staging, Target, Write, choose, source_towards,
};

const MIB: usize = 1 << 20;

/// A pattern that no shift of itself equals.
fn pattern(bytes: &mut [u8], seed: u32) {
    for (at, byte) in (0_u32..).zip(bytes) {
        *byte = (at.wrapping_add(seed).wrapping_mul(0x9e37_79b9) >> 24) as u8;
    }
}

#[tokio::test]
#[ignore = "needs an RDMA device: make test-rdma"]
async fn two_priorities_write_a_mebibyte_each_and_announce_it_in_order() {
    const PIECES: u32 = 4;
    let machine = Machine::new();
    let (mut a, b) = (Side::new(&machine, MIB), Side::new(&machine, 2 * MIB));
    let paths = [(0, 0), (5, 136)].map(|(service_level, traffic_class)| Path {
        service_level,
        traffic_class,
        ..Path::default()
    });
    let pairs = paths.map(|path| {
        let pair = (a.pair(&machine), b.pair(&machine));
        support::connect(&pair.0, &pair.1, &path);
        (path, pair)
    });
    pattern(a.staging.bytes(), 1);
    let target = b.ring.target();
    let piece = MIB / PIECES as usize;
    for (rank, (_, (sender, receiver))) in (0_u32..).zip(&pairs) {
        receiver.post_receives(1).unwrap();
        for index in 0..PIECES {
            let at = index as usize * piece;
            let write = Write {
                work: u64::from(rank * PIECES + index),
                from: a.staging.part(at..at + piece),
                then: None,
                to: Target {
                    address: target.address + (rank as usize * MIB + at) as u64,
                    ..target
                },
                // Only the last is announced: then all before it are there.
                immediate: (index == PIECES - 1).then_some(0x8000_0000 | rank),
                signalled: index == PIECES - 1,
            };
            sender.post(&write).unwrap();
        }
    }
    let announced = until(&b.queue, 2).await;
    let mut expected = [0, 1].map(|rank: u32| {
        let immediate = 0x8000_0000 | rank;
        let bytes = u32::try_from(piece).unwrap();
        (
            pairs[rank as usize].1.1.number(),
            Outcome::Announced { immediate, bytes },
        )
    });
    let mut found: Vec<_> = announced
        .iter()
        .map(|one| (one.queue_pair, one.outcome))
        .collect();
    found.sort_unstable_by_key(|(number, _)| *number);
    expected.sort_unstable_by_key(|(number, _)| *number);
    assert_eq!(found, expected);
    let mut arrived = vec![0; 2 * MIB];
    b.ring.copy_to(0, &mut arrived);
    assert!(arrived[..MIB] == *a.staging.bytes() && arrived[MIB..] == arrived[..MIB]);

    let written = until(&a.queue, 2).await;
    let mut works: Vec<_> = written.iter().map(|one| one.outcome).collect();
    works.sort_unstable_by_key(|outcome| format!("{outcome:?}"));
    assert_eq!(works, [3, 7].map(|work| Outcome::Written { work }));
    for (path, (sender, _)) in &pairs {
        let state = sender.state().unwrap();
        assert!(state.ready);
        assert_eq!(state.traffic_class, path.traffic_class);
        println!(
            "service level {} is kept as {}",
            path.service_level, state.service_level
        );
    }
}

#[tokio::test]
#[ignore = "needs an RDMA device: make test-rdma"]
async fn an_announcement_without_bytes_and_one_in_the_request_arrive() {
    let machine = Machine::new();
    let (mut a, b) = (Side::new(&machine, 4096), Side::new(&machine, 4096));
    let (sender, receiver) = (a.pair(&machine), b.pair(&machine));
    support::connect(&sender, &receiver, &Path::default());
    receiver.post_receives(2).unwrap();
    assert!(sender.inline() >= 56, "{}", sender.inline());
    pattern(a.staging.bytes(), 7);
    let mut short = Write {
        work: 1,
        from: a.staging.part(8..64),
        then: None,
        to: b.ring.target(),
        immediate: Some(56),
        signalled: false,
    };
    sender.post(&short).unwrap();
    short.from = None;
    short.immediate = Some(u32::MAX);
    sender.post(&short).unwrap();
    let announced = until(&b.queue, 2).await;
    let outcomes: Vec<_> = announced.iter().map(|one| one.outcome).collect();
    assert_eq!(
        outcomes,
        [(56, 56), (u32::MAX, 0)].map(|(immediate, bytes)| Outcome::Announced { immediate, bytes })
    );
    let mut arrived = [0; 56];
    b.ring.copy_to(0, &mut arrived);
    assert_eq!(arrived, a.staging.bytes()[8..64]);
}

#[tokio::test]
#[ignore = "needs an RDMA device: make test-rdma"]
async fn a_peer_that_is_gone_fails_the_write_and_flushes_what_follows() {
    let machine = Machine::new();
    let (a, b) = (Side::new(&machine, 4096), Side::new(&machine, 4096));
    let (sender, receiver) = (a.pair(&machine), b.pair(&machine));
    let impatient = Path {
        timeout: 10,
        retries: 2,
        ..Path::default()
    };
    support::connect(&sender, &receiver, &impatient);
    sender.post_receives(1).unwrap();
    let target = b.ring.target();
    drop(receiver);
    for work in [1, 2] {
        sender
            .post(&support::write(work, &a.staging, target))
            .unwrap();
    }
    let found = until(&a.queue, 3).await;
    let outcomes: Vec<_> = found.iter().map(|one| one.outcome).collect();
    assert_eq!(
        outcomes[0],
        Outcome::WriteFailed {
            work: 1,
            failure: Failure::Unanswered
        }
    );
    let flushed = Failure::Flushed;
    assert!(outcomes.contains(&Outcome::WriteFailed {
        work: 2,
        failure: flushed
    }));
    assert!(outcomes.contains(&Outcome::ReceiveFailed { failure: flushed }));
    assert!(sender.state().unwrap().failed);
}

#[tokio::test]
#[ignore = "needs an RDMA device: make test-rdma"]
async fn a_pair_that_is_ended_flushes_its_receives_and_the_peer_notices() {
    let machine = Machine::new();
    let (a, b) = (Side::new(&machine, 4096), Side::new(&machine, 4096));
    let (sender, receiver) = (a.pair(&machine), b.pair(&machine));
    let impatient = Path {
        timeout: 10,
        retries: 2,
        ..Path::default()
    };
    support::connect(&sender, &receiver, &impatient);
    receiver.post_receives(3).unwrap();
    receiver.fail().unwrap();
    let flushed = until(&b.queue, 3).await;
    for one in flushed {
        let expected = Outcome::ReceiveFailed {
            failure: Failure::Flushed,
        };
        assert_eq!((one.queue_pair, one.outcome), (receiver.number(), expected));
    }
    // After the flush nothing comes in: the write fails, and the ring is as it was.
    sender
        .post(&support::write(9, &a.staging, b.ring.target()))
        .unwrap();
    let failed = until(&a.queue, 1).await;
    assert!(
        matches!(failed[0].outcome, Outcome::WriteFailed { work: 9, .. }),
        "{failed:?}"
    );
}

#[tokio::test]
#[ignore = "needs an RDMA device: make test-rdma"]
async fn memory_that_was_given_back_takes_no_late_write() {
    let machine = Machine::new();
    let (a, b) = (Side::new(&machine, 4096), Side::new(&machine, 4096));
    let (sender, receiver) = (a.pair(&machine), b.pair(&machine));
    support::connect(&sender, &receiver, &Path::default());
    let Side { ring, .. } = b;
    let target = ring.target();
    drop(ring);
    sender.post(&support::write(1, &a.staging, target)).unwrap();
    let failed = until(&a.queue, 1).await;
    assert_eq!(
        failed[0].outcome,
        Outcome::WriteFailed {
            work: 1,
            failure: Failure::RemoteAccess
        }
    );
    drop(receiver);
}

#[tokio::test]
#[ignore = "needs an RDMA device: make test-rdma"]
async fn an_announcement_without_a_receive_waits_as_long_as_it_may() {
    let machine = Machine::new();
    let (a, b) = (Side::new(&machine, 4096), Side::new(&machine, 4096));
    let (sender, receiver) = (a.pair(&machine), b.pair(&machine));
    let impatient = Path {
        receive_retries: 1,
        ..Path::default()
    };
    support::connect(&sender, &receiver, &impatient);
    let mut write = support::write(1, &a.staging, b.ring.target());
    write.immediate = Some(1);
    sender.post(&write).unwrap();
    let failed = until(&a.queue, 1).await;
    assert_eq!(
        failed[0].outcome,
        Outcome::WriteFailed {
            work: 1,
            failure: Failure::NoReceive
        }
    );
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn gids_are_found_by_rule_and_by_choice_and_errors_list_them() {
    let machine = Machine::new();
    let gids = machine.verbs.gids().unwrap();
    for entry in &gids {
        println!("{entry}");
    }
    let peer = machine.gid.gid.address();
    assert_eq!(machine.gid.interface.as_deref(), Some("veth0"));
    assert_eq!(machine.gid.prefix, Some(24));
    assert_eq!(source_towards(peer).unwrap(), peer);
    let other: Choice = "rxe1:1:1".parse().unwrap();
    let chosen = choose(&gids, Some(&other), peer, None).unwrap();
    assert_eq!(chosen.device, "rxe1");
    let nowhere = "203.0.113.1".parse().unwrap();
    let error = choose(&gids, None, nowhere, None).unwrap_err().to_string();
    assert!(
        error.contains("rxe0:1:1 RoCEv2 192.168.77.1/24 on veth0"),
        "{error}"
    );

    // The table has no such place, and no packet can be sent from there.
    let mut absent = machine.gid.clone();
    absent.index = 200;
    let side = Side::new(&machine, 4096);
    let pair = QueuePair::new(&machine.domain, &side.queue, &absent, SIZES, 1).unwrap();
    let error = pair
        .connect(&pair.endpoint(), &Path::default())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "RDMA: can't point a queue pair at its peer"
    );
    let error = machine.verbs.device("rxe9").unwrap_err();
    assert_eq!(error.source.to_string(), "there is no rxe9");
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn a_device_without_dma_buf_says_so() {
    let machine = Machine::new();
    let ring = Ring::new(&machine.domain, 4096).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let file: OwnedFd = file.into();
    let result = DmaBuf::new(&machine.domain, file.as_fd(), 0, 4096);
    // Soft-RoCE of Linux 6.12 has none. Where a device has, /dev/null still isn't one.
    let takes = machine.domain.takes_dma_buf();
    println!("dma-buf: {takes}");
    let error = result.unwrap_err();
    assert_eq!(
        matches!(error, RegisterError::NoDmaBuf(_)),
        !takes,
        "{error}"
    );
    assert_eq!(ring.len(), 4096);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn things_may_be_dropped_in_any_order() {
    let machine = Machine::new();
    let queue = CompletionQueue::new(machine.domain.context(), 16).unwrap();
    let pair = QueuePair::new(&machine.domain, &queue, &machine.gid, SIZES, 1).unwrap();
    let staging = Staging::new(&machine.domain, 4096).unwrap();
    drop(queue);
    drop(machine);
    assert!(!pair.state().unwrap().ready);
    pair.post_receives(1).unwrap();
    drop(pair);
    assert_eq!(staging.len(), 4096);
}
