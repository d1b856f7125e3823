//! Clients' requests that an engine's own HTTP server answers: what the data path must know of them.
//!
//! Each has a number on its way to the engine, which the engine says again with what it wants KV for (`Expect.client`). A
//! table under a lock, and no messages: a number must be known here before an engine can speak of it, and two inboxes of one
//! task have no order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lynx_proto::engine::v1::TraceContext;
use lynx_units::Width;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::method::Method;

/// What is known of a client's request.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// The span that it belongs to.
    pub trace: TraceContext,
    /// When it arrived: for whoever measures, and in nanoseconds since the Unix epoch.
    pub arrived: (Instant, u64),
    /// How its KV travels; `None` leaves it to the deployment.
    pub method: Option<Method>,
    /// The anchor's mean width; `None` leaves it to the policy.
    pub anchor: Option<Width>,
}

/// The requests that an engine's server has at the moment. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    table: Arc<Mutex<Table>>,
    over: CancellationToken,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    known: HashMap<u64, Client>,
}

/// A request that is known until this is dropped.
#[derive(Debug)]
pub struct Known {
    number: u64,
    table: Arc<Mutex<Table>>,
}

impl Clients {
    /// A client's request is about to be handed on.
    pub fn enter(&self, client: Client) -> Known {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.last += 1;
        let number = table.last;
        table.known.insert(number, client);
        drop(table);
        Known {
            number,
            table: Arc::clone(&self.table),
        }
    }

    /// The request of this number, unless its client is gone or answered.
    pub fn get(&self, number: u64) -> Option<Client> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.known.get(&number).cloned()
    }

    /// The agent ends, and whatever is under way is to be told so.
    pub fn end(&self) {
        self.over.cancel();
    }

    /// Waits until the agent ends.
    pub async fn ended(&self) {
        self.over.cancelled().await;
    }
}

impl Known {
    /// Never 0, with bit 63 clear, and no other request's of this process.
    pub const fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.known.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_is_known_until_it_is_gone_and_no_number_comes_twice() {
        let clients = Clients::default();
        let client = |method| Client {
            trace: TraceContext::default(),
            arrived: (Instant::now(), 0),
            method,
            anchor: None,
        };
        let one = clients.enter(client(None));
        let two = clients.clone().enter(client(Some(Method::Bf16)));
        assert_eq!((one.number(), two.number()), (1, 2));
        assert_eq!(clients.get(2).unwrap().method, Some(Method::Bf16));
        drop(two);
        assert_eq!(clients.get(2), None);
        assert_eq!(clients.enter(client(None)).number(), 3);
        clients.clone().end();
        clients.ended().await;
    }
}
