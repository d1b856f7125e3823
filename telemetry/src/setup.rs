//! Setting a process up, and sending what is left at its end.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use opentelemetry::{Key, KeyValue, global};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, ResourceDetector as _};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, TracerProviderBuilder,
};
use tokio::runtime::Runtime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::exporter::SaysOnce;
use crate::filter::{self, FilterError};
use crate::settings::{LogFormat, Settings};

/// How long the end of a process waits for the collector.
const LAST_FLUSH: Duration = Duration::from_secs(3);
/// How long a span waits for company: a trace is to be seen when its request has just ended.
const DELAY: Duration = Duration::from_secs(1);

/// Keeps logging and tracing set up. Dropping it sends what is left, for three seconds at most.
#[derive(Debug)]
#[must_use = "dropping the guard ends tracing"]
pub struct Guard {
    provider: SdkTracerProvider,
    // The exporter's own, so that neither a busy nor a single-threaded runtime of the process stops it, nor it them.
    runtime: Option<Runtime>,
}

/// Why a process can't log or trace as it was told to.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The log filter is not one.
    #[error("the log filter {filter:?} can't be used")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: FilterError,
    },
    /// The share of traces is not one.
    #[error("the sampling ratio is {0}, and it is a number from 0 to 1")]
    Sampling(String),
    /// The collector's address is not one.
    #[error("the OTLP endpoint {endpoint:?} can't be used: it is like http://collector:4317")]
    Endpoint {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        #[source]
        source: ExporterBuildError,
    },
    /// The exporter's thread can't be started.
    #[error("the exporter's thread can't be started")]
    Thread(#[source] io::Error),
    /// It was done before.
    #[error("logging is set up already: init is for the start of a process")]
    Twice(#[source] TryInitError),
}

/// Sets up logging to standard error and tracing for this process, once. Never waits for a collector.
///
/// # Errors
/// Where the settings or the standard variables are wrong, or where it was called before.
pub fn init(settings: &Settings) -> Result<Guard, InitError> {
    let filter = log_filter(settings)?;
    let (builder, runtime) = exporting(settings, &environment)?;
    let provider = builder
        .with_resource(resource(settings, &environment))
        .build();
    logs(settings.log_format, filter)
        .try_init()
        .map_err(InitError::Twice)?;
    global::set_tracer_provider(provider.clone());
    Ok(Guard { provider, runtime })
}

impl Guard {
    /// Sends what is there now, so that a program that goes on can look at it.
    pub fn flush(&self) {
        drop(self.provider.force_flush());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A collector that is away was mentioned when it was.
        drop(self.provider.shutdown_with_timeout(LAST_FLUSH));
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

#[expect(
    clippy::disallowed_methods,
    reason = "the variables are OpenTelemetry's and tracing's, which read most of them by themselves"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn log_filter(settings: &Settings) -> Result<EnvFilter, InitError> {
    let filter = environment("RUST_LOG").unwrap_or_else(|| settings.log_filter.clone());
    filter::parse(&filter).map_err(|source| InitError::Filter { filter, source })
}

fn logs(format: LogFormat, filter: EnvFilter) -> impl SubscriberInitExt {
    let lines = fmt::layer().with_writer(io::stderr);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter))
}

/// A provider that makes ids in any case, and sends spans where there is a collector.
fn exporting(
    settings: &Settings,
    environment: Lookup<'_>,
) -> Result<(TracerProviderBuilder, Option<Runtime>), InitError> {
    let mut builder = SdkTracerProvider::builder();
    if environment("OTEL_TRACES_SAMPLER").is_none() {
        builder = builder.with_sampler(sampler(settings, environment)?);
    }
    let Some(endpoint) = endpoint(settings, environment) else {
        return Ok((builder, None));
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("otlp")
        .enable_all()
        .build()
        .map_err(InitError::Thread)?;
    let entered = runtime.enter();
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&endpoint)
        .build()
        .map_err(|source| InitError::Endpoint {
            endpoint: endpoint.clone(),
            source,
        })?;
    drop(entered);
    let mut batches = BatchConfigBuilder::default();
    if environment("OTEL_BSP_SCHEDULE_DELAY").is_none() {
        batches = batches.with_scheduled_delay(DELAY);
    }
    let processor = BatchSpanProcessor::builder(SaysOnce::new(exporter, endpoint))
        .with_batch_config(batches.build())
        .build();
    Ok((builder.with_span_processor(processor), Some(runtime)))
}

fn sampler(settings: &Settings, environment: Lookup<'_>) -> Result<Sampler, InitError> {
    let ratio = match environment("OTEL_TRACES_SAMPLER_ARG") {
        Some(text) => text.parse().map_err(|_| InitError::Sampling(text))?,
        None => settings.sampling,
    };
    if (0.0..=1.0).contains(&ratio) {
        Ok(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
            ratio,
        ))))
    } else {
        Err(InitError::Sampling(ratio.to_string()))
    }
}

fn endpoint(settings: &Settings, environment: Lookup<'_>) -> Option<String> {
    if environment("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    let endpoint = environment("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        .or_else(|| environment("OTEL_EXPORTER_OTLP_ENDPOINT"))
        .or_else(|| settings.otlp_endpoint.clone())?;
    Some(if endpoint.contains("://") {
        endpoint
    } else {
        format!("http://{endpoint}")
    })
}

fn resource(settings: &Settings, environment: Lookup<'_>) -> Resource {
    let service = environment("OTEL_SERVICE_NAME").unwrap_or_else(|| settings.service.clone());
    let instance = settings
        .instance
        .clone()
        .map(|instance| KeyValue::new("service.instance.id", instance));
    let from_environment = EnvResourceDetector::new().detect();
    let named = from_environment.get(&Key::from_static_str("service.name"));
    // The environment's attributes come last, so that they win.
    Resource::builder()
        .with_service_name(service)
        .with_attributes(instance)
        .with_attributes(settings.attributes.iter().cloned())
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_attributes(
            named
                .filter(|_| environment("OTEL_SERVICE_NAME").is_none())
                .map(|name| KeyValue::new("service.name", name)),
        )
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn the_environment_wins_over_the_settings() {
        let mut settings = Settings::new("test");
        settings.otlp_endpoint = Some("collector:4317".to_owned());
        assert_eq!(
            endpoint(&settings, &none).as_deref(),
            Some("http://collector:4317")
        );
        let other = |name: &str| {
            (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "http://other:1".to_owned())
        };
        assert_eq!(
            endpoint(&settings, &other).as_deref(),
            Some("http://other:1")
        );
        let disabled = |name: &str| (name == "OTEL_SDK_DISABLED").then(|| "true".to_owned());
        assert_eq!(endpoint(&settings, &disabled), None);

        let half = |name: &str| (name == "OTEL_TRACES_SAMPLER_ARG").then(|| "0.5".to_owned());
        let sampler = sampler(&settings, &half).unwrap();
        assert!(format!("{sampler:?}").contains("0.5"), "{sampler:?}");
    }

    #[test]
    fn a_sampling_ratio_out_of_range_is_refused() {
        let mut settings = Settings::new("test");
        for bad in [-0.1, 1.1, f64::NAN] {
            settings.sampling = bad;
            assert!(matches!(
                sampler(&settings, &none),
                Err(InitError::Sampling(_))
            ));
        }
        let words = |name: &str| (name == "OTEL_TRACES_SAMPLER_ARG").then(|| "half".to_owned());
        assert!(matches!(
            sampler(&Settings::new("test"), &words),
            Err(InitError::Sampling(text)) if text == "half"
        ));
    }

    #[test]
    fn an_endpoint_that_is_none_is_refused() {
        let mut settings = Settings::new("test");
        settings.otlp_endpoint = Some("http://a b".to_owned());
        let error = exporting(&settings, &none).err().unwrap();
        assert!(error.to_string().contains("http://a b"), "{error}");
    }

    #[test]
    fn the_service_is_named() {
        let mut settings = Settings::new("lynx-agent");
        settings.instance = Some("decode-0".to_owned());
        let resource = resource(&settings, &none);
        for (key, value) in [
            ("service.name", "lynx-agent"),
            ("service.instance.id", "decode-0"),
        ] {
            let found = resource.get(&Key::from_static_str(key)).unwrap();
            assert_eq!(found.as_str(), value);
        }
    }
}
