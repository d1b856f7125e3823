//! Compiles the kernels for the CPU, once for each line of `variants.txt`.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let kernels = Path::new("..");
    println!("cargo:rerun-if-changed=cpp");
    // Not the folder, in which the loader lies too.
    for file in fs::read_dir(kernels)? {
        let path = file?.path();
        let is_source = path.extension().is_some_and(|it| it == "cu" || it == "cuh");
        if is_source || path.ends_with("variants.txt") {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let variants = fs::read_to_string(kernels.join("variants.txt"))?;
    let mut declarations = String::new();
    let mut table = String::new();
    for line in variants.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let entry = format!("lynx_shim_{}", name.replace('-', "_"));
        let mut build = compiler();
        build.define("LYNX_ENTRY", entry.as_str());
        for define in words {
            let (name, value) = define.split_once('=').unwrap_or((define, "1"));
            build.define(name, value);
        }
        build
            .include(kernels)
            .file("cpp/variant.cpp")
            .compile(&entry);
        declarations += &format!(
            "#[link(name = {entry:?}, kind = \"static\")]\n\
             unsafe extern \"C\" {{ fn {entry}(kernel: u32, first: *const c_void, units: *const Unit, \
             blocks: *const [u32; 3], seed: u64) -> *const c_char; }}\n"
        );
        table += &format!("({name:?}, {entry}),\n");
    }
    compiler()
        .include(kernels)
        .file("cpp/launch.cpp")
        .file("cpp/checks.cpp")
        .compile("lynx_shim_launch");
    let out = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("variants.rs");
    fs::write(
        out,
        format!("{declarations}const VARIANTS: &[(&str, Entry)] = &[\n{table}];\n"),
    )
}

fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    // No contraction: what the kernels fuse, they fuse by name.
    build
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .define("LYNX_SHIM", None)
        .flag("-ffp-contract=off")
        .flag("-Wno-unknown-pragmas")
        .include("cpp");
    build
}
