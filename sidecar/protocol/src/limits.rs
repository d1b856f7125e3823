//! Every bound of the protocol in one place. A peer that exceeds one is refused; none is negotiated.

use core::time::Duration;

/// The version of the frames in this crate. Peers with different versions refuse each other in their Hello.
pub const PROTOCOL_VERSION: u16 = 1;

/// Smallest size the scheduler cuts a chunk to, in bytes. Below it, headers and system calls cost more than preemption gains.
pub const MIN_CHUNK: u32 = 16 * 1024;
/// Largest chunk, in bytes. Above it, a chunk no longer costs measurably less per byte.
pub const MAX_CHUNK: u32 = 256 * 1024;
/// How much of the link's time a chunk may take: what an anchor waits at most behind a residual that is being written.
pub const CHUNK_TIME: Duration = Duration::from_millis(1);
/// How much of the link's time may be in flight on top of the bandwidth-delay product: as long as an end point may be late without
/// the wire running empty, and what an anchor waits at most behind residuals in flight.
pub const SLACK_TIME: Duration = Duration::from_millis(4);
/// How long residuals wait for the answer to an offer whose anchor is there, on top of what is in flight before it: a short
/// round trip and a moment of the receiving application. What is sent meanwhile would be in front of the anchor; a receiver
/// that takes longer leaves the wire to the residuals.
pub const OFFER_HOLD: Duration = Duration::from_millis(10);
/// How long a round trip that was measured on an empty wire is believed before the wire is emptied to measure it anew.
pub const ROUND_TRIP_AGE: Duration = Duration::from_secs(10);
/// How long residuals wait at most for an empty wire and the round trip on it.
pub const PROBE_TIME: Duration = Duration::from_millis(100);

/// Longest segment, in bytes.
pub const MAX_SEGMENT: u32 = 256 * 1024 * 1024;
/// Most segments of a unit.
pub const MAX_SEGMENTS: usize = 64;
/// Most units of a transfer.
pub const MAX_UNITS: u32 = 1 << 20;
/// Most segments of all units of a transfer together.
pub const MAX_TRANSFER_SEGMENTS: usize = 1 << 22;
/// Longest descriptor of a transfer, in bytes.
pub const MAX_DESCRIPTOR: usize = 64 * 1024;
/// Longest peer information in a Hello, in bytes.
pub const MAX_PEER_INFO: usize = 4 * 1024;
/// Longest reason text, in bytes of UTF-8.
pub const MAX_REASON: usize = 512;
/// Most transfers alive on one link in one direction.
pub const MAX_TRANSFERS: usize = 1024;
/// Most control frames waiting to be written. A peer that makes us say more without reading it is cut off.
pub const MAX_CONTROL_BACKLOG: usize = 4 * MAX_TRANSFERS;

/// How often each connection says that it is alive.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// How long a connection may be silent before its link is taken for dead: three heartbeats, and less than the two seconds
/// within which whoever waits must have heard of it.
pub const SILENCE_LIMIT: Duration = Duration::from_millis(1800);
/// Longest life of a transfer: a deadline further away is brought forward to it.
pub const MAX_LIFETIME: Duration = Duration::from_secs(3600);
