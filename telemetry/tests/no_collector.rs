//! A collector that isn't there.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use lynx_telemetry::{self as telemetry, Context, InitError, Kind, Settings};

/// More than the guard gives the last spans, with room for a busy machine.
const SOON: Duration = Duration::from_secs(8);

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how long it takes is what is tested"
)]
fn nothing_waits_for_a_collector_that_is_not_there() {
    // Nobody accepts here, and so nobody answers.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut settings = Settings::new("test");
    settings.otlp_endpoint = Some(silent.local_addr().unwrap().to_string());
    let start = Instant::now();
    let guard = telemetry::init(&settings).unwrap();
    for _ in 0..10_000 {
        let span = telemetry::start("work", Kind::Internal, &Context::new());
        assert!(telemetry::trace_id(span.context()).is_some());
        let (traceparent, _) = telemetry::inject(span.context());
        assert!(traceparent.ends_with("-01"), "{traceparent}");
    }
    let twice = telemetry::init(&Settings::new("test"));
    assert!(matches!(twice, Err(InitError::Twice(_))));
    drop(guard);
    assert!(start.elapsed() < SOON, "took {:?}", start.elapsed());
}
