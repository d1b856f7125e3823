//! Every request to the API server, counted and timed.
//!
//! Below kube's client, so that watches, leases and events are in it too: what an operator costs a cluster is all of that.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::{Layer, Service};

use crate::clock::Clock;
use crate::metrics::Metrics;

/// A client whose requests are counted.
///
/// # Errors
/// Where the configuration's certificates or addresses can't be used.
pub fn client(config: Config, metrics: Arc<Metrics>, clock: Clock) -> Result<Client, kube::Error> {
    let counting = Counting { metrics, clock };
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&counting)
        .build())
}

#[derive(Clone, Debug)]
struct Counting {
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            by: self.clone(),
        }
    }
}

#[derive(Clone, Debug)]
struct Counted<S> {
    inner: S,
    by: Counting,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let verb = verb(&request);
        let Counting { metrics, clock } = self.by.clone();
        let begun = clock.now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().ok().map(Response::status);
            metrics.requested(verb, code, clock.now().saturating_since(begun));
            answer
        })
    }
}

/// What is asked, in the API server's own words.
fn verb<B>(request: &Request<B>) -> &'static str {
    let has = |parameter: &str| {
        let mut parameters = request.uri().query().unwrap_or_default().split('&');
        parameters.any(|one| one.starts_with(parameter))
    };
    match *request.method() {
        Method::GET if has("watch=") => "watch",
        Method::GET if is_of_many(request.uri().path()) => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH if has("fieldManager=") && has("force=") => "apply",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

/// Whether a path ends with the name of a kind, not of an object.
fn is_of_many(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let parts = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => return false,
    };
    matches!(parts, [_] | ["namespaces", _, _])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_what_they_ask() {
        let of = |method: Method, uri: &str| {
            verb(&Request::builder().method(method).uri(uri).body(()).unwrap())
        };
        let pods = "/api/v1/namespaces/a/pods";
        let lynx = "/apis/lynx.dev/v1alpha1";
        for (method, uri, verb) in [
            (Method::GET, format!("{pods}?&limit=500"), "list"),
            (Method::GET, format!("{lynx}/lynxdeployments?"), "list"),
            (Method::GET, format!("{pods}?&watch=true&x=y"), "watch"),
            (Method::GET, format!("{pods}/b"), "get"),
            (Method::GET, "/version".into(), "get"),
            (Method::POST, pods.into(), "create"),
            (Method::PUT, format!("{pods}/b"), "update"),
            (
                Method::PATCH,
                format!("{pods}/b?&force=true&fieldManager=lynx"),
                "apply",
            ),
            (
                Method::PATCH,
                format!("{pods}/b?&fieldManager=lynx"),
                "patch",
            ),
            (Method::DELETE, format!("{pods}/b"), "delete"),
        ] {
            assert_eq!(of(method, &uri), verb, "{uri}");
        }
    }
}
