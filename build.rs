//! Compiles `proto/` with a compiler in Rust: no `protoc` has to be installed.

use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["picker", "fleet", "token_review", "rate_limiter"]
        .map(|name| format!("proto/kinference/v1alpha1/{name}.proto"));
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    std::fs::write(out.join("kinference.descriptors"), prost_bytes(&descriptors))?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}

fn prost_bytes(descriptors: &impl prost::Message) -> Vec<u8> {
    descriptors.encode_to_vec()
}
