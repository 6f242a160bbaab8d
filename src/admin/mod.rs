//! HTTP for operators: metrics, readiness, the fleet as JSON.
