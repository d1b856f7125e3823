//! By TLS: who may name which link.

use lynx_tls::authority::{Authority, Request, write};
use lynx_tls::{Credentials, UnixTime};
use tonic::Code;

use super::peer::Peer;
use super::{Agent, prefill_engine};
use crate::method::Method;
use crate::security::Security;
use crate::testing::soon;

const DEPLOYMENT: &str = "spiffe://test/ns/a/lynx/b";

/// Agents with certificates of their own that share the deployment's name.
fn security(authority: &Authority, own: &str) -> Security {
    let directory = tempfile::tempdir().unwrap();
    let mut request = Request::new(DEPLOYMENT);
    request.names.push(own.to_owned());
    write(directory.path(), &authority.issue(&request).unwrap()).unwrap();
    let name = Some(DEPLOYMENT);
    let credentials = Credentials::open(directory.path(), name, UnixTime::now()).unwrap();
    Security::new(credentials, true)
}

#[tokio::test]
async fn a_link_is_only_its_own_peers_to_name() {
    let authority = Authority::new().unwrap();
    let own = security(&authority, "prefill-0.test");
    let agent = Agent::start_with(|options| options.security = own).await;
    let _engine = agent.attach(prefill_engine()).await;
    let mut one = Peer::meet_with(&agent, &security(&authority, "decode-0.test")).await;
    let mut other = Peer::meet_with(&agent, &security(&authority, "decode-1.test")).await;
    let request = one.ask(Method::LynxExact, 100, 0);
    // Even with the ticket, were it ever to get about.
    let status = other.transfer(&request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(status.message().contains("another agent's"), "{status}");
    soon(one.transfer(&request)).await.unwrap();
}
