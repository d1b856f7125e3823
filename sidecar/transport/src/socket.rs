//! The options of the two data connections of a link.

use std::io;
use std::net::SocketAddr;

use lynx_units::Priority;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// How much of a residual may lie in the kernel unsent. More would be a queue in front of the link that no scheduler
/// sees; less costs goodput on links whose round trip is longer than a scheduling hiccup.
const UNSENT_RESIDUAL: u32 = 128 << 10;

/// The same for anchors. Nothing waits behind them but other anchors, so this only keeps their order adjustable.
const UNSENT_ANCHOR: u32 = 256 << 10;

/// Pending connections of a listener.
const BACKLOG: u32 = 128;

/// How one priority's packets are marked.
struct Marking {
    /// Differentiated services code point: RFC 4594's "low-latency data" (AF21) for anchors, "high-throughput data"
    /// (AF11) for residuals. Not the lower-effort class: networks may starve it, and a residual has a deadline.
    dscp: u32,
    /// Linux's priority in the sending host's own queues: "interactive" (6, the highest without privileges) and "bulk" (2).
    queue: u32,
    unsent: u32,
}

const fn marking(priority: Priority) -> Marking {
    match priority {
        Priority::Anchor => Marking {
            dscp: 18,
            queue: 6,
            unsent: UNSENT_ANCHOR,
        },
        Priority::Residual => Marking {
            dscp: 10,
            queue: 2,
            unsent: UNSENT_RESIDUAL,
        },
    }
}

/// Sets what a connection of this priority needs.
pub(crate) fn configure(stream: &TcpStream, priority: Priority) -> io::Result<()> {
    let marking = marking(priority);
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_notsent_lowat(marking.unsent)?;
    // Marks are a request to the network. A sandbox that doesn't let them be set is like a network that ignores them.
    mark(stream, &marking).ok();
    Ok(())
}

fn mark(stream: &TcpStream, marking: &Marking) -> io::Result<()> {
    let socket = SockRef::from(stream);
    // The code point is the upper six bits of the old type-of-service byte.
    let traffic_class = marking.dscp << 2;
    match stream.local_addr()? {
        SocketAddr::V4(_) => socket.set_tos_v4(traffic_class)?,
        SocketAddr::V6(_) => socket.set_tclass_v6(traffic_class)?,
    }
    // After the traffic class: setting that resets this.
    socket.set_priority(marking.queue)
}

/// Listens on an address.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn each_priority_is_marked_and_keeps_its_unsent_queue_short() {
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        for (priority, traffic_class, queue, unsent) in [
            (Priority::Anchor, 72, 6, 256 << 10),
            (Priority::Residual, 40, 2, 128 << 10),
        ] {
            configure(&stream, priority).unwrap();
            let socket = SockRef::from(&stream);
            assert_eq!(socket.tos_v4().unwrap(), traffic_class);
            assert_eq!(socket.priority().unwrap(), queue);
            assert_eq!(socket.tcp_notsent_lowat().unwrap(), unsent);
            assert!(socket.tcp_nodelay().unwrap());
        }
    }
}
