//! Descriptors from an engine, beside its stream, which can't carry any.
//!
//! A second socket, of the same name with `.fds` behind it. A message is 16 bytes with one descriptor; the answer, one byte, says
//! that it lies on the shelf, where `Attach` finds it by those bytes. It lies there as long as its connection is open: an engine
//! that is refused, or dies, leaves nothing behind, and nobody needs a clock to tidy up.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// What a descriptor is called.
type Name = [u8; 16];

/// The most connections at a time.
const MOST_CONNECTIONS: usize = 16;
/// The most descriptors of one: as many as a pool may be of.
const MOST_DESCRIPTORS: usize = 1024;
/// What is put behind the engine socket's name.
const SUFFIX: &str = ".fds";

/// The socket.
#[derive(Debug)]
pub(super) struct Handover {
    listener: UnixListener,
    shelf: Shelf,
    /// Removed with it.
    file: super::SocketFile,
}

/// Descriptors by name. Clones are of the same shelf.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf(Arc<Mutex<HashMap<Name, OwnedFd>>>);

impl Handover {
    /// Listens beside the engine socket `path`, which this agent has just taken: what a former life left is replaced.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(SUFFIX);
        let path = Path::new(&name);
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self {
            listener: super::listen(path)?,
            shelf: Shelf::default(),
            file: super::SocketFile::of(path.to_owned())?,
        })
    }

    pub(super) fn shelf(&self) -> Shelf {
        self.shelf.clone()
    }

    /// Takes descriptors until it is dropped.
    pub(super) async fn run(self) -> Infallible {
        let _file = self.file;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < MOST_CONNECTIONS => {
                    if let Ok((stream, _)) = accepted {
                        connections.spawn(take(stream, self.shelf.clone()));
                    }
                }
            }
        }
    }
}

impl Shelf {
    /// A descriptor of its own of what lies there.
    pub(super) fn get(&self, name: &[u8]) -> Option<OwnedFd> {
        let shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.get(name)?.try_clone().ok()
    }

    /// Whether there was none of that name.
    fn put(&self, name: Name, descriptor: OwnedFd) -> bool {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !shelf.contains_key(&name);
        if is_new {
            shelf.insert(name, descriptor);
        }
        is_new
    }

    fn remove(&self, name: &Name) {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.remove(name);
    }
}

/// What came on one connection; it goes with it.
struct Lent {
    shelf: Shelf,
    names: Vec<Name>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| self.shelf.remove(name));
    }
}

/// One connection, until it ends or says something else.
async fn take(mut stream: UnixStream, shelf: Shelf) {
    let mut lent = Lent {
        shelf,
        names: Vec::new(),
    };
    while lent.names.len() < MOST_DESCRIPTORS {
        let message = stream
            .async_io(Interest::READABLE, || receive(&stream))
            .await;
        let Ok(Some((name, descriptor))) = message else {
            return;
        };
        if !lent.shelf.put(name, descriptor) {
            return;
        }
        lent.names.push(name);
        if stream.write_all(&[1]).await.is_err() {
            return;
        }
    }
    // No more are taken; those that came lie there until it ends.
    stream.readable().await.ok();
}

/// A whole message; `None` for the end, and for anything else.
fn receive(stream: &UnixStream) -> io::Result<Option<(Name, OwnedFd)>> {
    let mut name = [0; size_of::<Name>()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut name)];
    let received = recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    // There is room for a second one, as control messages are padded.
    let (descriptor, second) = (descriptors.next(), descriptors.next());
    let is_whole = received.bytes == name.len() && !received.flags.contains(ReturnFlags::CTRUNC);
    let is_one = is_whole && second.is_none();
    Ok(descriptor.filter(|_| is_one).map(|it| (name, it)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{IoSlice, Read as _, Seek as _, Write as _};
    use std::os::fd::AsFd as _;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::testing::soon;

    struct Fixture {
        directory: tempfile::TempDir,
        shelf: Shelf,
        _server: JoinSet<Infallible>,
    }

    fn start() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let handover = Handover::open(&directory.path().join("engine.sock")).unwrap();
        let shelf = handover.shelf();
        let mut server = JoinSet::new();
        server.spawn(handover.run());
        Fixture {
            directory,
            shelf,
            _server: server,
        }
    }

    impl Fixture {
        async fn dial(&self) -> UnixStream {
            let path = self.directory.path().join("engine.sock.fds");
            UnixStream::connect(path).await.unwrap()
        }
    }

    fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[&File]) {
        let descriptors: Vec<_> = descriptors.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        sendmsg(
            stream,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
    }

    async fn is_closed(stream: &mut UnixStream) -> bool {
        soon(stream.read(&mut [0; 1]))
            .await
            .is_ok_and(|read| read == 0)
    }

    #[tokio::test]
    async fn a_descriptor_lies_there_as_long_as_its_connection_is_open() {
        let fixture = start();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"kv").unwrap();
        let mut stream = fixture.dial().await;
        for name in [[1; 16], [2; 16]] {
            send(&stream, &name, &[&file]);
            assert_eq!(soon(stream.read_u8()).await.unwrap(), 1);
        }
        let mut found = File::from(fixture.shelf.get(&[2; 16]).unwrap());
        found.rewind().unwrap();
        let mut text = String::new();
        found.read_to_string(&mut text).unwrap();
        assert_eq!(text, "kv");
        assert!(fixture.shelf.get(&[3; 16]).is_none());
        drop(stream);
        soon(async {
            while fixture.shelf.get(&[1; 16]).is_some() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    #[tokio::test]
    async fn what_is_no_descriptor_with_a_new_name_ends_the_connection() {
        let fixture = start();
        let file = tempfile::tempfile().unwrap();
        let mut first = fixture.dial().await;
        send(&first, &[1; 16], &[&file]);
        assert_eq!(soon(first.read_u8()).await.unwrap(), 1);
        let wrong: [(&[u8], &[&File]); 4] = [
            (&[1; 16], &[&file]),
            (&[4; 15], &[&file]),
            (&[5; 16], &[]),
            (&[6; 16], &[&file, &file]),
        ];
        for (bytes, descriptors) in wrong {
            let mut stream = fixture.dial().await;
            send(&stream, bytes, descriptors);
            assert!(is_closed(&mut stream).await, "{bytes:?}");
        }
        assert!(
            fixture.shelf.get(&[1; 16]).is_some(),
            "the first one's stays"
        );
        assert!(fixture.shelf.get(&[6; 16]).is_none());
    }
}
