//! What the operator reads: its configuration, users' deployments, agents' reports.

use std::time::Duration;

use lynx_crds::LynxDeployment;
use lynx_operator::config::OperatorConfig;
use lynx_operator::streams::{Key, Registry};
use lynx_operator::validate::objections;
use lynx_proto::operator::v1::{Hello, Report, Role};
use lynx_units::Timestamp;
use prost::Message as _;

/// The operator's configuration file.
pub(crate) fn config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    if let Err(error) = OperatorConfig::parse(text, |_| None) {
        assert!(error.mistakes.iter().all(|mistake| !mistake.is_empty()));
        assert!(!error.mistakes.is_empty());
    }
}

/// A user's deployment: what is accepted is judged, written and read as the same.
pub(crate) fn deployment(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let Ok(deployment) = serde_norway::from_str::<LynxDeployment>(text) else {
        return;
    };
    let said = objections(&deployment);
    assert!(said.iter().all(|objection| !objection.is_empty()));
    let written = serde_norway::to_string(&deployment.spec).expect("what was read can be written");
    let again = serde_norway::from_str(&written).expect("what was written can be read");
    assert_eq!(deployment.spec, again);
}

/// Agents' reports, one after the other: however wild, the registry's books stay finite.
pub(crate) fn report(bytes: &[u8]) {
    let mut registry = Registry::default();
    let hello = |pod: &str, role: Role| Hello {
        namespace: "default".into(),
        deployment: "fuzz".into(),
        pod: pod.into(),
        role: role.into(),
        ..Hello::default()
    };
    let key = Key {
        namespace: "default".into(),
        name: "fuzz".into(),
    };
    let start = Timestamp::ORIGIN;
    let streams = [
        registry.join(hello("p", Role::Prefill), start),
        registry.join(hello("d", Role::Decode), start),
    ];
    let mut rest = bytes;
    for turn in 0..8u32 {
        let Ok(report) = Report::decode_length_delimited(&mut rest) else {
            break;
        };
        let now = start + Duration::from_secs(2) * turn;
        registry.report(streams[turn as usize % 2], report, now);
        registry.untold(&key, now);
        registry.links(&key, now);
        let window = registry.take_window(&key);
        window.token_time();
        window.transfer_bytes();
        registry.take_loads(&key, now);
    }
    assert_eq!(registry.agents(&key).count(), 2);
}
