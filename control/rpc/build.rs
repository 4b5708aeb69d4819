//! Generates the client and the server of the stream. Its messages are control-wire's. A message to a node is sent
//! in the encoding that all nodes share.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let codec = "crate::MessageCodec";
    let unary = |name: &str, route: &str, message: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type(format!("control_wire::proto::{message}Request"))
            .output_type(format!("control_wire::proto::{message}Reply"))
            .codec_path(codec)
            .build()
    };
    let follow = Method::builder()
        .name("follow")
        .route_name("Follow")
        .comment("The node's part of everything, then what changes.")
        .input_type("control_wire::proto::FollowRequest")
        .output_type("crate::Reply")
        .codec_path(codec)
        .client_streaming()
        .server_streaming()
        .build();
    let service = Service::builder()
        .name("Distribution")
        .package("ferrule.node.v1")
        .method(follow)
        .method(unary("announce", "Announce", "Announce"))
        .method(unary("report", "Report", "Report"))
        .build();
    Builder::new()
        .build_client(true)
        .build_server(std::env::var_os("CARGO_FEATURE_SERVER").is_some())
        .build_transport(false)
        .compile(&[service]);
}
