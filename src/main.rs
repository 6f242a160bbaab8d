//! The Kinference server: arguments, configuration, then the app.

fn main() {}
