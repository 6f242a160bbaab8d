//! Builds every room, wires channels, supervises tasks, drains on SIGTERM.
