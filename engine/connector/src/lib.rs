//! The embedded engine behind the engine API.
