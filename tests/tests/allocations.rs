//! What is moved a million times a minute is moved in memory that is there already.
//!
//! The allocator of this program counts what each thread asks it for. Between the protocol's machines, a transfer of many
//! chunks must ask for as much as one of few; a connection must ask far less than once a chunk; the codec must not ask at all
//! where its buffers are reserved. Why not a profiler's figures: they tell that something allocates, not that it may not.
#![cfg(test)]
#![expect(
    unsafe_code,
    reason = "an allocator that counts is an implementation of an unsafe trait"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lynx_kernels::{Blocks, Codec, Kind, KvShape, Profile, RawTokens, UnitBuffer, UnitPlan};
use lynx_protocol::receiver::{Event, ReceiverConfig};
use lynx_protocol::sender::{OpenTransfer, Segment, Transmit};
use lynx_protocol::wire::Packet;
use lynx_protocol::{CreditBook, Receiver, Sender, TransferPlan};
use lynx_transport::{
    Clock, Dialler, LinkConfig, Listener, PeerInfo, ReceiverEvent, SegmentPayload, SharedBytes,
};
use lynx_units::{Bytes, Epoch, Priority, Timestamp, TransferId, UnitIndex};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of requests for memory by thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count() {
    // A thread that is ending has no count any more.
    COUNT.try_with(|count| count.set(count.get() + 1)).ok();
}

// SAFETY: every call is handed on to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above; `memory` came from `System`, as all memory here does.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// How often `act` asks this thread's allocator for memory.
fn allocations<T>(act: impl FnOnce() -> T) -> (u64, T) {
    let before = COUNT.get();
    let done = act();
    (COUNT.get() - before, done)
}

const TRANSFER: TransferId = TransferId(1);
const UNITS: u32 = 8;
const SEGMENTS: usize = 3;
const KIB: u32 = 1 << 10;

/// Units of three segments, one of each of three levels.
fn plan(segment: u32) -> Arc<TransferPlan> {
    Arc::new(TransferPlan::new(UNITS, &[0, 1, 2], |_, _| segment).unwrap())
}

fn offer(segment: u32, now: Timestamp) -> OpenTransfer {
    OpenTransfer {
        transfer: TRANSFER,
        descriptor: Cow::Borrowed(b"plan"),
        plan: plan(segment),
        deadline: now + Duration::from_secs(60),
    }
}

fn windows() -> (ReceiverConfig, Arc<CreditBook>) {
    let window = [Bytes::from_mib(32); 2];
    (
        ReceiverConfig { window },
        CreditBook::new(Bytes::from_mib(64)),
    )
}

/// Allocations and chunks of a transfer from machine to machine, from the offer to the end.
fn between_machines(segment: u32) -> (u64, u64) {
    let mut now = Timestamp::ORIGIN;
    let (config, book) = windows();
    let mut sender = Sender::new(Epoch(1), now);
    let mut receiver = Receiver::new(Epoch(1), config, &book, now).unwrap();
    let plan = plan(segment);
    sender.open(offer(segment, now), now).unwrap();
    let parts = [Segment {
        len: segment,
        checksum: 7,
    }; SEGMENTS];
    for unit in (0..UNITS).map(UnitIndex) {
        sender.publish(TRANSFER, unit, &parts).unwrap();
    }
    let (count, complete) = allocations(|| {
        // Far more rounds than any of the transfers here needs.
        for _ in 0..100_000 {
            now += Duration::from_micros(200);
            for on in Priority::ALL {
                match sender.poll_transmit(on, now) {
                    Some(Transmit::Frame(packet)) => receiver.handle_frame(on, &packet, now),
                    Some(Transmit::Chunk(header)) => {
                        receiver.handle_chunk_header(on, &header, now).unwrap();
                        receiver.handle_chunk_done(on, &header, true, now);
                    }
                    None => {}
                }
            }
            while let Some(event) = receiver.poll_event() {
                match event {
                    Event::Offered { .. } => {
                        receiver.accept(TRANSFER, plan.clone(), now).unwrap();
                    }
                    Event::SegmentComplete { segment, len, .. } => {
                        let on = plan.priority(segment).unwrap();
                        receiver.release(on, Bytes::new(u64::from(len)), now);
                    }
                    Event::Complete(_) => return true,
                    _ => {}
                }
            }
            answer(&mut receiver, &mut sender, now);
        }
        false
    });
    assert!(complete, "the transfer ends");
    (count, sender.stats().chunks.into_iter().sum())
}

fn answer(receiver: &mut Receiver, sender: &mut Sender, now: Timestamp) {
    for on in Priority::ALL {
        while let Some(Packet { epoch, frame }) = receiver.poll_transmit(on, now) {
            sender.handle_frame(on, &Packet { epoch, frame }, now);
        }
    }
}

#[test]
fn the_protocol_allocates_nothing_per_chunk() {
    let (few, few_chunks) = between_machines(1024 * KIB);
    let (many, many_chunks) = between_machines(4 * 1024 * KIB);
    assert!(many_chunks >= 3 * few_chunks, "{few_chunks} {many_chunks}");
    assert_eq!(many, few, "{few_chunks} and {many_chunks} chunks");
}

/// Allocations and chunks of a transfer over a real connection, both of whose ends are this thread's.
async fn over_tcp(segment: u32) -> (u64, u64) {
    let clock = Clock::start();
    let config = |name| LinkConfig::new(clock, PeerInfo::new(name)).unwrap();
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut listener = Listener::bind(any_port, config("prefill")).unwrap();
    let mut dialler = Dialler::new(listener.address(), config("decode"));
    let (accepted, dialled) =
        tokio::join!(listener.accept(), dialler.connect(Duration::from_secs(10)));
    let (window, book) = windows();
    let (sender, _fates) = accepted.into_sender();
    let (receiver, mut events) = dialled.unwrap().into_receiver(window, &book).unwrap();
    let bytes = SharedBytes::from(vec![1; segment as usize]);

    let before = COUNT.get();
    sender.open(offer(segment, clock.now())).unwrap();
    for unit in (0..UNITS).map(UnitIndex) {
        let part = SegmentPayload {
            bytes: bytes.clone(),
            checksum: 7,
        };
        let parts = vec![part; SEGMENTS];
        sender.publish(TRANSFER, unit, parts).unwrap();
    }
    loop {
        match events.next().await.unwrap() {
            ReceiverEvent::Offered { .. } => receiver.accept(TRANSFER, plan(segment)).unwrap(),
            ReceiverEvent::Complete(_) => break,
            ReceiverEvent::SegmentComplete { .. } | ReceiverEvent::LevelComplete { .. } => {}
            other => unreachable!("{other:?}"),
        }
    }
    let count = COUNT.get() - before;
    // The link's figures are renewed now and then.
    loop {
        let chunks: u64 = receiver.stats().protocol.chunks.into_iter().sum();
        let received = receiver
            .stats()
            .protocol
            .received
            .into_iter()
            .sum::<Bytes>();
        if received.get() == u64::from(segment) * u64::from(UNITS) * SEGMENTS as u64 {
            return (count, chunks);
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn the_driver_allocates_nothing_per_chunk() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (count, chunks) = runtime.block_on(over_tcp(8 * 1024 * KIB));
    // Segments have memory of their own, events and commands share some, and what a heartbeat takes depends on the time. All
    // of that is far less than once a chunk.
    let most = 6 * u64::from(UNITS) * SEGMENTS as u64;
    assert!(4 * most < chunks, "{chunks} chunks are too few to tell");
    assert!(count < most, "{count} allocations for {chunks} chunks");
}

#[test]
fn the_codec_allocates_nothing_in_reserved_buffers() {
    const TOKENS: u32 = 300;
    let shape = KvShape {
        layers: 1,
        kv_heads: 3,
        head_dim: 64,
    };
    let profile = Profile::uniform(shape).unwrap();
    let cuts = profile.cuts("3.5".parse().unwrap());
    let order = profile.layer(0);
    let codec = Codec::detect();
    for kind in [Kind::K, Kind::V] {
        let raw = RawTokens::for_prompt(TOKENS);
        let plan = UnitPlan::new(shape, kind, 0..TOKENS, raw, cuts).unwrap();
        let mut sent = Blocks::new(shape, kind, 0..TOKENS);
        for (index, value) in sent.data_mut().iter_mut().enumerate() {
            // Finite values of both signs over a few binary orders of magnitude.
            let bits = index.wrapping_mul(40_503) % 0x400;
            *value =
                0x3e00 + u16::try_from(bits).unwrap() + if index % 3 == 0 { 0x8000 } else { 0 };
        }
        let mut received = Blocks::new(shape, kind, 0..TOKENS);
        let mut unit = UnitBuffer::default();
        unit.reserve(&plan);

        let (split, ()) = allocations(|| codec.split(&plan, order, &sent, &mut unit));
        let (tail, ()) = allocations(|| codec.encode_tail(&plan, &sent, &mut unit.tail));
        let (merge, merged) = allocations(|| codec.merge(&plan, order, &unit, 1, &mut received));
        let (exact, restored) =
            allocations(|| codec.decode_tail(&plan, order, &unit, &mut received));
        merged.unwrap();
        restored.unwrap();
        assert_eq!([split, tail, exact], [0; 3], "{kind:?}");
        assert!(
            merge <= 1,
            "{kind:?}: the widths of the unit's groups, and {merge} in all"
        );
    }
}

#[test]
fn the_count_counts() {
    let (count, list) = allocations(|| vec![1_u64, 2]);
    assert_eq!((count, list.len()), (1, 2));
    assert_eq!(allocations(|| ()).0, 0);
}
