//! The CEL that conditions and schema rules are written in: the standard one. Its functions are set up once.

use std::sync::{Arc, LazyLock};

use cel::{Context, Env};

/// One to evaluate with, without variables.
pub(super) fn context() -> Context<'static, 'static> {
    static STANDARD: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));
    Context::with_env(STANDARD.clone())
}
