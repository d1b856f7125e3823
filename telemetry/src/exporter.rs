//! An exporter that says once that it fails, and once that it works again.
//!
//! The SDK would log every lost batch: with a collector that is away for a night, that is a log of nothing else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

#[derive(Debug)]
pub(crate) struct SaysOnce<E> {
    inner: E,
    endpoint: String,
    failing: AtomicBool,
}

impl<E> SaysOnce<E> {
    pub(crate) fn new(inner: E, endpoint: String) -> Self {
        Self {
            inner,
            endpoint,
            failing: AtomicBool::new(false),
        }
    }
}

impl<E: SpanExporter> SpanExporter for SaysOnce<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.inner.export(batch).await;
        let failing = result.is_err();
        match (&result, self.failing.swap(failing, Ordering::Relaxed)) {
            (Err(error), false) => tracing::warn!(
                endpoint = %self.endpoint,
                %error,
                "traces can't be exported and are dropped until they can: is the collector there?"
            ),
            (Ok(()), true) => {
                tracing::info!(endpoint = %self.endpoint, "traces are exported again");
            }
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use opentelemetry_sdk::error::OTelSdkError;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// Fails as often as it is told to.
    #[derive(Debug)]
    struct Script(Mutex<Vec<bool>>);

    impl SpanExporter for Script {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            match self.0.lock().unwrap().pop() {
                Some(true) => Ok(()),
                _ => Err(OTelSdkError::InternalFailure("nobody there".to_owned())),
            }
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn a_collector_that_is_away_is_mentioned_once_and_so_is_its_return() {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(lines.clone())
            .finish();
        // Popped from the end.
        let script = vec![true, true, false, false, false];
        let exporter = SaysOnce::new(Script(Mutex::new(script)), "http://collector".to_owned());
        tracing::subscriber::with_default(subscriber, || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            for _ in 0..5 {
                drop(runtime.block_on(exporter.export(Vec::new())));
            }
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("can't be exported").count(), 1, "{text}");
        assert_eq!(text.matches("exported again").count(), 1, "{text}");
        assert!(text.contains("http://collector"), "{text}");
    }
}
