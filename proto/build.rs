//! Compiles the contracts without a protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "lynx/engine/v1/engine.proto",
        "lynx/peer/v1/peer.proto",
        "lynx/operator/v1/operator.proto",
    ];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
