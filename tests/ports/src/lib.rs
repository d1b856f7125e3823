//! Ports for clusters on one machine, chosen before their owners listen on them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A free address of this machine's loopback, held until this is dropped.
///
/// A port that is asked for, let go and named in a configuration can be another's by the time its owner is there: the
/// system gives it to the next who wants any, be it only the near end of a connection. Here a socket stays bound to it that
/// never listens. Who names the address can listen on it (like every server, with `SO_REUSEADDR`); until then connections to
/// it are refused.
#[derive(Debug)]
pub struct HeldAddress {
    address: SocketAddr,
    _socket: Socket,
}

impl HeldAddress {
    /// Takes one.
    ///
    /// # Errors
    /// No port is left, or no descriptor.
    pub fn take() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = socket.local_addr()?.as_socket().ok_or_else(|| {
            io::Error::other("the system says no address of a socket that is bound to one")
        })?;
        Ok(Self {
            address,
            _socket: socket,
        })
    }

    /// Which it is.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_held_address_refuses_connections_until_its_owner_listens_as_often_as_it_likes() {
        let held = HeldAddress::take().unwrap();
        for _ in 0..2 {
            let refused = TcpStream::connect(held.address()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind(held.address()).unwrap();
            TcpStream::connect(held.address()).unwrap();
            drop(listener);
        }
    }

    /// The near end of a connection is bound as this socket is, without `SO_REUSEADDR`.
    #[test]
    fn no_connection_is_given_a_held_address() {
        let held = HeldAddress::take().unwrap();
        let another = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let taken = another.bind(&held.address().into()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
