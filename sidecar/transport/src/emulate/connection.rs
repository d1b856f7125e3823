//! One connection through the relay: in each direction a reader in front of the shared link and a writer behind it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lynx_units::Bytes;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use super::pipe::{Delivery, LONGEST, Packet, Pipe};
use super::timer::Timer;
use crate::Clock;

/// What the kernel may hold of each of the relay's sockets. Small, because it is a queue that a real link wouldn't have.
const SOCKET_BUFFER: u32 = 32 << 10;

/// The segment size of a usual Ethernet. The loopback's own 64 KiB wouldn't fit a small socket buffer, and TCP would fall
/// into stop-and-go.
const SEGMENT: u32 = 1448;

/// What one connection may have between its reader and its writer in one direction, like a receive window: a peer that
/// doesn't read stops its own connection, and not the link. Enough for 1 Gbit/s over 30 ms; a longer or faster link is
/// limited by it.
const WINDOW: usize = 4 << 20;

/// Listens with the small buffers that accepted connections inherit.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = new_socket(address)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(64)
}

/// Connects to the target.
pub(super) async fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    new_socket(target)?.connect(target).await
}

fn new_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Before connect and listen: the window's scale is settled in the handshake.
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    SockRef::from(&socket).set_tcp_mss(SEGMENT)?;
    Ok(socket)
}

/// Carries bytes from `from` into the pipe and, behind it, to `to` until either ends.
pub(super) async fn carry(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    pipe: Pipe,
    clock: Clock,
) -> io::Result<()> {
    let (exit, deliveries) = mpsc::unbounded_channel();
    let timer = Timer::new(clock)?;
    let read = read(from, pipe, exit, clock);
    let write = write(to, deliveries, timer);
    // The reader drops its end of the channel when it ends, so the writer drains what is on the way and ends too.
    tokio::try_join!(read, write)?;
    Ok(())
}

async fn read(
    from: OwnedReadHalf,
    pipe: Pipe,
    exit: mpsc::UnboundedSender<Delivery>,
    clock: Clock,
) -> io::Result<()> {
    let window = Arc::new(Semaphore::new(WINDOW));
    let mut buffer = vec![0; LONGEST as usize];
    loop {
        // Waiting for bytes comes first: an idle connection must not hold room of the shared queue.
        from.readable().await?;
        let packet = pipe.packet();
        let mut room_in_window = acquire(&window, packet).await?;
        let mut room_in_queue = acquire(&pipe.room, packet).await?;
        let packet = packet as usize;
        let read = match from.try_read(buffer.get_mut(..packet).unwrap_or_default()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            read => read?,
        };
        drop(room_in_window.split(packet - read));
        drop(room_in_queue.split(packet - read));
        let packet = Packet {
            bytes: buffer.get(..read).unwrap_or_default().to_vec(),
            arrival: clock.now(),
            queued: room_in_queue,
            window: room_in_window,
            to: exit.clone(),
        };
        if pipe.entrance.send(packet).is_err() || read == 0 {
            return Ok(());
        }
    }
}

async fn acquire(
    room: &Arc<Semaphore>,
    bytes: u32,
) -> io::Result<tokio::sync::OwnedSemaphorePermit> {
    Arc::clone(room)
        .acquire_many_owned(bytes)
        .await
        .map_err(io::Error::other)
}

async fn write(
    mut to: OwnedWriteHalf,
    mut deliveries: mpsc::UnboundedReceiver<Delivery>,
    timer: Timer,
) -> io::Result<()> {
    while let Some(delivery) = deliveries.recv().await {
        timer.sleep_until(delivery.due).await?;
        if Bytes::of_slice(&delivery.bytes) == Bytes::ZERO {
            break;
        }
        to.write_all(&delivery.bytes).await?;
    }
    to.shutdown().await
}
