//! Compiles the protocol with a pure-Rust compiler: no protoc is needed to build Ferrule.

const PROTOS: [&str; 3] = ["proto/agent.proto", "proto/ipamd.proto", "proto/policy.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for proto in PROTOS {
        println!("cargo::rerun-if-changed={proto}");
    }
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(std::env::var_os("CARGO_FEATURE_SERVER").is_some())
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}
