//! Tracing and OpenTelemetry for every process of Lynx.
//!
//! A process calls [`init`] once, keeps the [`Guard`], and speaks `tracing` from then on. Spans whose times are known only
//! afterwards (an engine's steps, a level's arrival) are written with [`Tracer::span_at`].
