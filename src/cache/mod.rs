//! Which blocks each worker holds, and the block keys that say so.
