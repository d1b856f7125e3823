//! Compiles the contracts without a protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usual = ["lynx/engine/v1/engine.proto", "lynx/peer/v1/peer.proto"];
    // An operator has thousands of these streams, on which little is said.
    let many = ["lynx/operator/v1/operator.proto"];
    for file in usual.iter().chain(&many) {
        println!("cargo:rerun-if-changed={file}");
    }
    let build = tonic_prost_build::configure;
    build().compile_fds(protox::compile(usual, ["."])?)?;
    build()
        .codec_path("crate::small::Small")
        .compile_fds(protox::compile(many, ["."])?)?;
    Ok(())
}
