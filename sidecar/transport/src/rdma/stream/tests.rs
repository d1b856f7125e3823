//! What a stream costs on paper: bytes, requests and completions, the same in every run.

use std::net::Ipv4Addr;

use lynx_protocol::limits::MAX_CHUNK;
use lynx_protocol::wire::CHUNK_FRAME_LEN;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::super::outgoing::{LONGEST, MOST_LONG};
use super::*;
use crate::emulate::{Fabric, FabricCounts};

/// As many chunks as the figures are for, an eighth of a gibibyte.
const CHUNKS: u64 = 512;
const GIB: u64 = 8;

/// Both ends of a stream on the model.
pub(crate) async fn ends(fabric: &Fabric) -> [Remote; 2] {
    ends_by([fabric.adapter(), fabric.adapter()]).await
}

/// Both ends, each with its own cards.
pub(crate) async fn ends_by([near_by, far_by]: [Arc<dyn Adapter>; 2]) -> [Remote; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    let (near, (far, _)) = (near.unwrap(), far.unwrap());
    let here = Prepared::new(&near_by, &near, Priority::Residual).await;
    let here = here.unwrap();
    let offered = here.endpoints();
    let there = Paired::facing(&far_by, &far, Priority::Residual, &offered).await;
    let there = there.unwrap();
    let here = here.connect(there.endpoints()).unwrap();
    let mut ends = [Remote::new(here, near, None), Remote::new(there, far, None)];
    let [here, there] = &mut ends;
    let (a, b) = tokio::join!(here.greet(true), there.greet(false));
    a.and(b).unwrap();
    ends
}

/// What has been asked of both cards after so many chunks.
async fn chunks(count: u64) -> FabricCounts {
    let fabric = Fabric::new(1);
    let [mut from, mut to] = ends(&fabric).await;
    let before = fabric.counts();
    let chunk = vec![7; LONGEST];
    let mut arrived = vec![0; LONGEST];
    for _ in 0..count {
        let mut unread = LONGEST;
        let mut unwritten = chunk.as_slice();
        while unread > 0 {
            match from.write(&[IoSlice::new(unwritten)]) {
                Ok(bytes) => unwritten = &unwritten[bytes..],
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            match to.read(&mut [IoSliceMut::new(&mut arrived[..unread])]) {
                Ok(bytes) => unread -= bytes,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }
    let after = fabric.counts();
    FabricCounts {
        bytes: after.bytes - before.bytes,
        requests: after.requests - before.requests,
        signalled: after.signalled - before.signalled,
        ..after
    }
}

/// Of a GiB of KV in chunks of 256 KiB, as it stands in the specification.
#[tokio::test]
async fn a_gibibyte_costs_4736_requests_and_4608_completions_of_which_512_tell_what_was_taken_out()
{
    let counts = chunks(CHUNKS).await;
    let headers = CHUNKS * CHUNK_FRAME_LEN as u64;
    assert_eq!(counts.bytes, CHUNKS * u64::from(MAX_CHUNK) + headers);
    // A chunk is one request, and one more each time that the ring ends within it; a word is for 8 chunks, a quarter of the ring.
    assert_eq!(counts.requests * GIB, 4096 + 128 + 512);
    assert_eq!(counts.signalled * GIB, 4096 + 512, "{counts:?}");
    assert_eq!(counts.not_ready, 0);
    assert!(counts.most_bytes_under_way <= (MOST_LONG * LONGEST) as u64);
}

/// As where its process has died, and the card tries on.
#[tokio::test]
async fn a_peer_that_is_gone_is_not_waited_for() {
    let fabric = Fabric::new(2);
    let [mut here, mut there] = ends(&fabric).await;
    // Nothing that is written from now on arrives.
    fabric.set_longest(Some(16));
    let chunk = [7; LONGEST];
    assert_eq!(here.write(&[IoSlice::new(&chunk)]).unwrap(), LONGEST);
    there.tcp_mut().shutdown().await.unwrap();
    here.tcp().readable().await.unwrap();
    let drained = here.drain().await.unwrap_err();
    assert_eq!(drained.kind(), io::ErrorKind::BrokenPipe);
    let refused = (0..=MOST_LONG).find_map(|_| here.write(&[IoSlice::new(&chunk)]).err());
    assert_eq!(refused.unwrap().kind(), io::ErrorKind::BrokenPipe);
}
