//! What the two sides of a probe tell each other over TCP: a line of JSON each, and a byte where both wait for each other.

use lynx_verbs::{Endpoint, Gid, Mtu, Target};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::ProbeError;
use super::pair::PIECE;

/// The longest line that is read.
const LONGEST: u64 = 4096;

/// A version of what is said and done.
const VERSION: u32 = 2;

/// One side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Introduction {
    version: u32,
    /// The anchor's and the residual's.
    ends: [End; 2],
    ring: Room,
    /// How many round trips; the asking side's counts.
    pub(super) rounds: u32,
    /// How much each way; the asking side's counts.
    mebibytes: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct End {
    number: u32,
    first_packet: u32,
    gid: [u8; 16],
    lid: u16,
    mtu: u8,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Room {
    address: u64,
    bytes: u64,
    key: u32,
}

impl Introduction {
    pub(super) fn new(ends: [Endpoint; 2], ring: Target, rounds: u32, mebibytes: u32) -> Self {
        let ends = ends.map(|end| End {
            number: end.number,
            first_packet: end.first_packet,
            gid: end.gid.0,
            lid: end.lid,
            mtu: end.mtu.number(),
        });
        let ring = Room {
            address: ring.address,
            bytes: ring.bytes,
            key: ring.key,
        };
        Self {
            version: VERSION,
            ends,
            ring,
            rounds,
            mebibytes,
        }
    }

    /// The end of the priority with this index; none where it can't be.
    pub(super) fn end(&self, index: usize) -> Option<Endpoint> {
        let end = self.ends.get(index)?;
        Some(Endpoint {
            number: end.number,
            first_packet: end.first_packet,
            gid: Gid(end.gid),
            lid: end.lid,
            mtu: Mtu::from_number(end.mtu.into())?,
        })
    }

    /// Where to write; none where there is less room than a piece.
    pub(super) fn ring(&self) -> Option<Target> {
        let Room {
            address,
            bytes,
            key,
        } = self.ring;
        let enough = bytes >= PIECE as u64;
        enough.then_some(Target {
            address,
            bytes,
            key,
        })
    }

    /// How many pieces the megabytes are.
    pub(super) fn pieces(&self) -> u64 {
        u64::from(self.mebibytes) * (1 << 20) / PIECE as u64
    }

    pub(super) async fn write(&self, stream: &mut BufReader<TcpStream>) -> Result<(), ProbeError> {
        let mut line = serde_json::to_vec(self).map_err(|_| ProbeError::Stranger)?;
        line.push(b'\n');
        stream
            .get_mut()
            .write_all(&line)
            .await
            .map_err(ProbeError::Arrangement)
    }

    pub(super) async fn read(stream: &mut BufReader<TcpStream>) -> Result<Self, ProbeError> {
        let mut line = Vec::new();
        let mut bounded = stream.take(LONGEST);
        bounded
            .read_until(b'\n', &mut line)
            .await
            .map_err(ProbeError::Arrangement)?;
        let read: Self = serde_json::from_slice(&line).map_err(|_| ProbeError::Stranger)?;
        if read.version != VERSION {
            return Err(ProbeError::Stranger);
        }
        Ok(read)
    }
}

/// Both sides wait here for each other.
pub(super) async fn meet(stream: &mut BufReader<TcpStream>) -> Result<(), ProbeError> {
    const HERE: u8 = b'.';
    let written = stream.get_mut().write_all(&[HERE]).await;
    written.map_err(ProbeError::Arrangement)?;
    match stream.read_u8().await.map_err(ProbeError::Arrangement)? {
        HERE => Ok(()),
        _ => Err(ProbeError::Stranger),
    }
}
