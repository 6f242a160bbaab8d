//! Envoy's ExternalProcessor stream: a pure state machine and the thin loop around it.
