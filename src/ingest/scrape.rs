//! Scrapes of `/metrics`.
