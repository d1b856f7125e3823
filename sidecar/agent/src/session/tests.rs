//! Who is attached, who is refused, and how a session ends.

mod matrix;

use std::os::unix::fs::PermissionsExt as _;

use lynx_kernels::{Kind, TileSource as _};
use lynx_proto::engine::v1::Report;
use tokio::sync::oneshot;
use tonic::Code;

use super::*;
use crate::pool::Readable;
use crate::testing::{FakeEngine, attach, make_pool, soon};

/// A change, and what is said about it.
type Case = (fn(&mut Attach), &'static str);

struct Fixture {
    directory: tempfile::TempDir,
    attachment: watch::Receiver<Attachment>,
    engines: mpsc::Receiver<Attached>,
    /// Ends with the fixture.
    _server: tokio::task::JoinSet<Result<(), SocketError>>,
}

impl Fixture {
    fn new(role: Role) -> Self {
        let directory = tempfile::tempdir().unwrap();
        make_pool(directory.path(), &attach(v1::Role::Decode, 4), 1);
        let (socket, engines) = Socket::open(options(directory.path(), role)).unwrap();
        let attachment = socket.attachment();
        let mut server = tokio::task::JoinSet::new();
        server.spawn(socket.run());
        Self {
            directory,
            attachment,
            engines,
            _server: server,
        }
    }

    async fn attach(&self, attach: Attach) -> Result<FakeEngine, Status> {
        FakeEngine::attach(&self.directory.path().join("engine.sock"), attach).await
    }

    async fn attachment_is(&mut self, wanted: impl FnMut(&Attachment) -> bool) -> Attachment {
        soon(self.attachment.wait_for(wanted))
            .await
            .unwrap()
            .clone()
    }
}

fn options(directory: &std::path::Path, role: Role) -> Options {
    Options {
        socket: directory.join("engine.sock"),
        shared_directory: directory.to_owned(),
        role,
        has_http: false,
        gpu: crate::pool::GpuOptions::default(),
    }
}

fn decode() -> Attach {
    attach(v1::Role::Decode, 4)
}

#[tokio::test]
async fn an_engine_that_fits_is_handed_over_and_its_end_is_told() {
    let mut fixture = Fixture::new(Role::Decode);
    let engine = fixture.attach(decode()).await.unwrap();
    let mut attached = soon(fixture.engines.recv()).await.unwrap();
    assert_eq!(attached.engine.info().model, "tiny");
    assert_eq!(attached.engine.pool().blocks(), 4);
    fixture.attachment_is(|state| state.engine.is_some()).await;
    engine.say(from_engine::Kind::Report(Report::default()));
    let heard = soon(attached.messages.next()).await;
    assert!(matches!(heard, Some(Message::Report(_))));
    drop(engine);
    let heard = soon(attached.messages.next()).await;
    assert!(matches!(heard, Some(Message::Detached(_))));
    assert!(soon(attached.messages.next()).await.is_none());
    assert!(attached.engine.is_gone());
    let kind = from_agent::Kind::Forget(v1::Forget {});
    assert_eq!(attached.engine.send(kind), Err(EngineGone));
    let state = fixture.attachment_is(|state| state.engine.is_none()).await;
    assert!(state.error.is_some());
}

/// Carries one connection to a socket until told to stop: then it stays open, and nothing passes.
async fn stoppable(from: std::path::PathBuf, to: std::path::PathBuf) -> oneshot::Sender<()> {
    let listener = tokio::net::UnixListener::bind(from).unwrap();
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::UnixStream::connect(to).await.unwrap();
        tokio::select! {
            ended = tokio::io::copy_bidirectional(&mut near, &mut far) => drop(ended),
            _ = stopped => std::future::pending().await,
        }
    });
    stop
}

#[tokio::test]
async fn an_engine_that_hangs_is_let_go_although_its_stream_is_open() {
    let mut fixture = Fixture::new(Role::Decode);
    let directory = fixture.directory.path();
    let through = directory.join("relay.sock");
    let stop = stoppable(through.clone(), directory.join("engine.sock")).await;
    let engine = FakeEngine::attach(&through, decode()).await.unwrap();
    let mut attached = soon(fixture.engines.recv()).await.unwrap();
    stop.send(()).unwrap();
    // The keepalive's timers are all that goes on.
    tokio::time::pause();
    let heard = soon(attached.messages.next()).await;
    let Some(Message::Detached(why)) = heard else {
        panic!("{heard:?}");
    };
    assert!(why.contains("has not answered for"), "{why}");
    assert!(attached.engine.is_gone());
    drop(engine);
}

#[tokio::test]
async fn a_second_engine_is_refused_by_name_until_the_first_is_gone() {
    let mut fixture = Fixture::new(Role::Decode);
    let first = fixture.attach(decode()).await.unwrap();
    let second = fixture.attach(decode()).await.err().unwrap();
    assert_eq!(second.code(), Code::FailedPrecondition);
    assert!(second.message().contains("another engine (test engine 1)"));
    let other = fixture.attach(attach(v1::Role::Prefill, 4)).await;
    let other = other.err().unwrap();
    assert!(other.message().contains("for prefill"), "it never fits");
    drop(first);
    fixture.attachment_is(|state| state.engine.is_none()).await;
    // The place is free a moment after that is told.
    let again = soon(async {
        loop {
            match fixture.attach(decode()).await {
                Ok(engine) => break engine,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    drop(again.await);
}

#[tokio::test]
async fn the_socket_goes_with_its_agent_and_not_with_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("engine.sock");
    let (socket, _engines) = Socket::open(options(directory.path(), Role::Decode)).unwrap();
    assert!(path.exists());
    drop(socket);
    assert!(!path.exists());
    let (first, _engines) = Socket::open(options(directory.path(), Role::Decode)).unwrap();
    std::fs::rename(&path, directory.path().join("old.sock")).unwrap();
    let (second, _engines) = Socket::open(options(directory.path(), Role::Decode)).unwrap();
    drop(first);
    assert!(path.exists(), "it is the second one's");
    drop(second);
    let options = Options {
        shared_directory: directory.path().join("missing"),
        ..options(directory.path(), Role::Decode)
    };
    let error = Socket::open(options).unwrap_err().to_string();
    assert!(error.contains("engine.sharedDirectory"), "{error}");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_by_name_and_kept_for_those_who_ask() {
    let mut fixture = Fixture::new(Role::Decode);
    let cases: [Case; 8] = [
        (|a| a.api_version = 2, "version 2 of the engine API"),
        (
            |a| a.role = v1::Role::Prefill.into(),
            "for prefill, and this agent for decode",
        ),
        (|a| a.generates = false, "configure engine.http"),
        (|a| a.context_tokens = 0, "context_tokens"),
        (|a| a.layout = None, "no KV layout"),
        (
            |a| a.layout.as_mut().unwrap().block_tokens = 16,
            "blocks of 16 tokens",
        ),
        (|a| a.pool = None, "no pool"),
        (
            |a| a.pool.as_mut().unwrap().file = "../pool".to_owned(),
            "not a plain name",
        ),
    ];
    for (change, expected) in cases {
        let mut attach = decode();
        change(&mut attach);
        let status = fixture.attach(attach).await.err().unwrap();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains(expected), "{status}");
        let told = |state: &Attachment| state.error.as_deref() == Some(status.message());
        assert!(fixture.attachment_is(told).await.engine.is_none());
    }
    let fits = fixture.attach(decode()).await;
    assert!(fits.is_ok());
}

#[tokio::test]
async fn an_engine_with_a_server_of_its_own_is_taken_where_the_agent_knows_of_one() {
    let alone = attach(v1::Role::Prefill, 4);
    let served = Attach {
        generates: false,
        ..alone.clone()
    };
    let directory = tempfile::tempdir().unwrap();
    make_pool(directory.path(), &served, 1);
    let options = Options {
        has_http: true,
        ..options(directory.path(), Role::Prefill)
    };
    let (socket, mut engines) = Socket::open(options).unwrap();
    let mut server = tokio::task::JoinSet::new();
    server.spawn(socket.run());
    let path = directory.path().join("engine.sock");
    let refused = FakeEngine::attach(&path, alone).await;
    let refused = refused.err().unwrap();
    assert!(refused.message().contains("engine.http"), "{refused}");
    let engine = FakeEngine::attach(&path, served).await.unwrap();
    assert!(soon(engines.recv()).await.is_some());
    drop(engine);
}

#[tokio::test]
async fn an_engine_that_breaks_the_rules_is_told_which_and_let_go() {
    let mut fixture = Fixture::new(Role::Decode);
    let mut engine = fixture.attach(decode()).await.unwrap();
    let mut attached = soon(fixture.engines.recv()).await.unwrap();
    engine.done(9, 1);
    let status = engine.hear().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("no request 9"), "{status}");
    let Some(Message::Detached(why)) = soon(attached.messages.next()).await else {
        panic!("the session goes on")
    };
    assert_eq!(why, status.message());
}

#[tokio::test]
async fn an_engine_that_cuts_its_pool_short_is_told_so_and_another_is_taken() {
    let mut fixture = Fixture::new(Role::Decode);
    let mut engine = fixture.attach(decode()).await.unwrap();
    let mut attached = soon(fixture.engines.recv()).await.unwrap();
    let pool = Arc::clone(attached.engine.pool());
    let file = fixture.directory.path().join("pool");
    std::fs::File::create(&file).unwrap();
    let table = Readable::new(&pool, vec![0], 64, 64).unwrap();
    let source = table.source(0, Kind::K, 0..64).unwrap();
    assert!(pool.intact().is_ok(), "nothing was touched yet");
    assert_eq!(source.rows(0, 0).data[0], 0);
    assert!(table.intact().is_err());
    let status = engine.hear().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("pages of the pool's file"));
    let Some(Message::Detached(why)) = soon(attached.messages.next()).await else {
        panic!("the session goes on")
    };
    assert_eq!(why, status.message());
    fixture.attachment_is(|state| state.engine.is_none()).await;
    make_pool(fixture.directory.path(), &decode(), 2);
    let again = soon(async {
        loop {
            match fixture.attach(decode()).await {
                Ok(engine) => break engine,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    drop(again.await);
}

#[tokio::test]
async fn a_role_that_cannot_use_an_engine_says_why() {
    let mut fixture = Fixture::new(Role::Decode);
    let mut engine = fixture.attach(decode()).await.unwrap();
    let attached = soon(fixture.engines.recv()).await.unwrap();
    attached.engine.refuse("there is no profile");
    let status = engine.hear().await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::FailedPrecondition, "there is no profile")
    );
    let told = |state: &Attachment| state.error.as_deref() == Some("there is no profile");
    fixture.attachment_is(told).await;
}

#[tokio::test]
async fn a_socket_left_behind_is_replaced_and_anything_else_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path(), Role::Prefill);
    let alive = Socket::open(options.clone()).unwrap();
    let taken = Socket::open(options.clone()).unwrap_err();
    assert!(matches!(taken, SocketError::Taken { .. }));
    drop(alive);
    // As a life that was cut short leaves it.
    drop(std::os::unix::net::UnixListener::bind(&options.socket).unwrap());
    assert!(options.socket.exists());
    let socket = Socket::open(options.clone()).unwrap();
    let mode = std::fs::metadata(&options.socket).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o660);
    drop(socket);
    std::fs::write(&options.socket, "precious").unwrap();
    let occupied = Socket::open(options.clone()).unwrap_err();
    assert!(matches!(occupied, SocketError::Occupied { .. }));
    let nowhere = Options {
        socket: directory.path().join("missing/engine.sock"),
        ..options
    };
    let refused = Socket::open(nowhere).unwrap_err();
    assert!(matches!(refused, SocketError::NoDirectory { .. }));
}
