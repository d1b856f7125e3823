//! What the engine has said waits for the role, and what a client or an operator wants overtakes it there.

use lynx_proto::engine::v1::from_agent;
use tokio::sync::mpsc::UnboundedReceiver;

use super::engine::{self, Engine};
use super::prefill::Prefill;
use super::world::{TOKENS, options, request, settings};
use super::*;
use crate::session::{Message, Socket};

/// A decode role whose inboxes a test empties itself.
struct Hand {
    decoder: Decoder,
    inbox: UnboundedReceiver<Signal>,
    messages: Messages,
    pool: Arc<crate::pool::Pool>,
    counters: Arc<Counters>,
    engine: Engine,
    _prefill: Prefill,
    _directory: tempfile::TempDir,
    _server: tokio::task::JoinSet<()>,
}

impl Hand {
    /// Attached and linked.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let prefill_directory = directory.path().join("prefill");
        std::fs::create_dir(&prefill_directory).unwrap();
        let prefill = Prefill::start(&prefill_directory, TOKENS, "gen-1").await;
        let options = options(directory.path());
        let path = options.socket.clone();
        let (socket, mut engines) = Socket::open(options).unwrap();
        let mut server = tokio::task::JoinSet::new();
        server.spawn(async move { socket.run().await.unwrap() });
        let (signals, inbox) = mpsc::unbounded_channel();
        let counters = Arc::<Counters>::default();
        let decoder = Decoder::new(
            settings(&prefill),
            Clock::start(),
            (Drain::new(), Clients::default()),
            Arc::clone(&counters),
            watch::channel(Status::default()).0,
            signals,
        );
        let engine = engine::start(&path, directory.path(), true).await;
        let attached = engines.recv().await.unwrap();
        let mut hand = Self {
            decoder: decoder.unwrap(),
            inbox,
            pool: Arc::clone(attached.engine.pool()),
            messages: attached.messages,
            counters,
            engine,
            _prefill: prefill,
            _directory: directory,
            _server: server,
        };
        hand.decoder.set_peers(None);
        hand.decoder.attach(attached.engine);
        while !hand.decoder.peers.any(hand.decoder.clock.now()) {
            hand.signal().await;
        }
        hand
    }

    /// Handles what comes next of the role itself; whether it was a client's going.
    async fn signal(&mut self) -> bool {
        let signal = self.inbox.recv().await.unwrap();
        let is_client = matches!(signal, Signal::ClientGone(_));
        self.decoder.signal(signal);
        is_client
    }

    /// Handles what the engine says until something of which this is true, which is yet to be handled.
    async fn until(&mut self, is: impl Fn(&Message) -> bool) -> Message {
        loop {
            let message = self.messages.next().await.unwrap();
            if is(&message) {
                return message;
            }
            self.decoder.message(message);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expect_that_an_abort_or_a_forget_has_overtaken_holds_and_begins_nothing() {
    for forgets in [false, true] {
        let mut hand = Hand::new().await;
        let (client, answer) = mpsc::unbounded_channel();
        let wanted = Box::new(request(None));
        hand.decoder.command(Command::Generate(wanted, client));
        let is_expect = |message: &Message| matches!(message, Message::Expect(_));
        let expect = hand.until(is_expect).await;
        assert!(!hand.pool.is_unclaimed());
        if forgets {
            let (done, _answer) = oneshot::channel();
            hand.decoder.command(Command::Forget(done));
        } else {
            drop(answer);
            while !hand.signal().await {}
        }
        assert!(hand.pool.is_unclaimed(), "an Abort says that it is");
        hand.decoder.message(expect);
        assert!(!hand.decoder.is_loading());
        assert_eq!(hand.counters.transfers_begun.get(), 0);
        let abort = |said: &from_agent::Kind| matches!(said, from_agent::Kind::Abort(_));
        hand.engine.seen.wait(abort).await;
        let is_end = |message: &Message| matches!(message, Message::Finished(_));
        let end = hand.until(is_end).await;
        hand.decoder.message(end);
        assert!(hand.decoder.requests.is_empty());
    }
}
