//! A peer that says the right things and then reads no more.

use std::net::SocketAddr;
use std::time::Duration;

use lynx_protocol::handshake;
use lynx_protocol::wire::{Credit, Decoded, Frame, Heartbeat, Packet, decode};
use lynx_tls::Plane;
use lynx_units::{Bytes, Epoch, Priority, TransferId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;

const EPOCH: Epoch = Epoch(1);

/// A connection, by another implementation than the one under test.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Dials, accepts one transfer with a credit that has no end, and from then on only says that it is alive.
pub(crate) async fn peer(address: SocketAddr, transfer: TransferId) {
    let mut anchor = connect(address, Priority::Anchor).await;
    let mut residual = connect(address, Priority::Residual).await;
    read_to_offer(&mut anchor).await;
    say(&mut anchor, Frame::Accept(transfer)).await;
    let limit = [Bytes::from_mib(1 << 20); 2];
    say(&mut anchor, Frame::Credit(Credit { limit })).await;
    let mut alive = tokio::time::interval(Duration::from_millis(300));
    loop {
        alive.tick().await;
        for stream in [&mut anchor, &mut residual] {
            say(stream, Frame::Heartbeat(Heartbeat::default())).await;
        }
    }
}

/// Opens one of the two connections of a link, and says Hello.
pub(crate) async fn connect(address: SocketAddr, priority: Priority) -> Box<dyn Stream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let tcp = socket.connect(address).await.unwrap();
    let mut stream: Box<dyn Stream> = match super::credentials() {
        None => Box::new(tcp),
        Some(credentials) => {
            let config = credentials.current().client(Plane::Data);
            let connector = tokio_rustls::TlsConnector::from(config);
            let name = address.ip().into();
            Box::new(connector.connect(name, tcp).await.unwrap())
        }
    };
    let mut hello = Vec::new();
    let info = b"name=mute\nticket=00112233445566778899aabbccddeeff\ncodec=1\n";
    handshake::hello(EPOCH, priority, 1, info)
        .encode(&mut hello)
        .unwrap();
    stream.write_all(&hello).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

/// Reads up to an Open.
async fn read_to_offer(stream: &mut Box<dyn Stream>) {
    let mut bytes = Vec::new();
    loop {
        match decode(&bytes).unwrap() {
            Decoded::Packet { packet, len } => {
                if matches!(packet.frame, Frame::Open(_)) {
                    return;
                }
                bytes.drain(..len);
            }
            Decoded::Incomplete { .. } => bytes.push(stream.read_u8().await.unwrap()),
        }
    }
}

async fn say(stream: &mut Box<dyn Stream>, frame: Frame<'static>) {
    let mut bytes = Vec::new();
    let packet = Packet {
        epoch: EPOCH,
        frame,
    };
    packet.encode(&mut bytes).unwrap();
    stream.write_all(&bytes).await.unwrap();
    stream.flush().await.unwrap();
}
