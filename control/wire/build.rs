//! Compiles the messages with a pure-Rust compiler: no protoc is needed to build Ferrule.

const PROTO: &str = "proto/node.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let descriptors = protox::compile([PROTO], ["proto"])?;
    // Encodings are compared byte by byte, so no map of theirs may have an order of its own.
    prost_build::Config::new().btree_map(["."]).compile_fds(descriptors)?;
    Ok(())
}
