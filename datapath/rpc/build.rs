//! Compiles the protocol with a pure-Rust compiler: no protoc is needed to build Ferrule.

const PROTO: &str = "proto/agent.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let descriptors = protox::compile([PROTO], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(std::env::var_os("CARGO_FEATURE_SERVER").is_some())
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}
