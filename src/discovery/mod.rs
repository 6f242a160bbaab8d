//! Where workers come from: watches that keep the registry true.
