//! TLS on a connection before anything else is said, and what to say to one that speaks the other way.

use std::io;
use std::time::Duration;

use lynx_protocol::wire::FRAME_MARK;
use lynx_protocol::{Code, Reason, handshake};
use lynx_tls::{Credentials, Plane, Session};
use lynx_units::Epoch;
use tokio::net::TcpStream;

use crate::anteroom::Spoken;
use crate::handshake::{HandshakeError, PATIENCE, say};
use crate::stream::{Secured, Stream, linger};

/// The first byte of TLS: a record of the handshake.
const TLS_MARK: u8 = 22;

/// How long a connection is kept for its last word to be read.
const LAST_WORD: Duration = Duration::from_millis(250);

/// Shakes hands on a connection that was dialled. All of it within [`PATIENCE`], however slowly bytes come.
pub(crate) async fn dialled(
    tcp: TcpStream,
    credentials: &Credentials,
) -> Result<Stream, HandshakeError> {
    let config = credentials.current().client(Plane::Data);
    let name = tcp.peer_addr()?.ip().into();
    patient_shake(tcp, Session::client(config, name)?).await
}

/// Shakes hands on a connection that was accepted: whichever way it speaks is known from its first byte. One that speaks
/// in clear where there are credentials is given back as it is, to be told so; one that speaks TLS where there are none is
/// told here.
pub(crate) async fn accepted(
    tcp: TcpStream,
    credentials: Option<&Credentials>,
    spoken: &Spoken,
) -> Result<Stream, HandshakeError> {
    let first = tokio::time::timeout(PATIENCE, first_byte(&tcp));
    let first = first.await.map_err(|_| HandshakeError::Silent)??;
    spoken.note();
    match (credentials, first) {
        (Some(_), FRAME_MARK) => Ok(Stream::Plain(tcp)),
        (Some(credentials), _) => {
            let config = credentials.current().server(Plane::Data);
            patient_shake(tcp, Session::server(config)?).await
        }
        (None, TLS_MARK) => {
            let why = "this side speaks no TLS on data: set the same tls.mode on both sides";
            let refusal = handshake::refuse(Epoch(0), Reason::new(Code::Rejected, why));
            let mut stream = Stream::Plain(tcp);
            say(&mut stream, &refusal).await?;
            if let Stream::Plain(plain) = &mut stream {
                drop(tokio::time::timeout(LAST_WORD, linger(plain)).await);
            }
            Err(HandshakeError::Encrypted)
        }
        (None, _) => Ok(Stream::Plain(tcp)),
    }
}

async fn first_byte(tcp: &TcpStream) -> io::Result<u8> {
    let mut first = [0];
    match tcp.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0]),
    }
}

async fn patient_shake(tcp: TcpStream, session: Session) -> Result<Stream, HandshakeError> {
    let shaken = tokio::time::timeout(PATIENCE, shake(tcp, session)).await;
    shaken.map_err(|_| HandshakeError::Silent)?
}

async fn shake(mut tcp: TcpStream, mut session: Session) -> Result<Stream, HandshakeError> {
    let mut is_first = true;
    loop {
        let done = session.shake();
        // On an error this is the alert that says why.
        write_out(&tcp, &mut session).await?;
        match done {
            Ok(true) => {
                let peer = session.peer()?;
                return Ok(Stream::Tls(Box::new(Secured::new(tcp, session, peer))));
            }
            Ok(false) => {}
            Err(error) => {
                drop(tokio::time::timeout(LAST_WORD, linger(&mut tcp)).await);
                return Err(error.into());
            }
        }
        let room = session.room();
        let count = read_some(&tcp, room).await?;
        if is_first && room.first() == Some(&FRAME_MARK) {
            return Err(HandshakeError::InClear);
        }
        is_first = false;
        session.received(count);
    }
}

async fn write_out(tcp: &TcpStream, session: &mut Session) -> io::Result<()> {
    while !session.outgoing().is_empty() {
        tcp.writable().await?;
        match tcp.try_write(session.outgoing()) {
            Ok(count) => session.sent(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn read_some(tcp: &TcpStream, room: &mut [u8]) -> io::Result<usize> {
    loop {
        tcp.readable().await?;
        match tcp.try_read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}
