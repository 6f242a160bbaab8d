//! The front doors.

pub mod ext_proc; // Envoy's ExternalProcessor stream
