//! Link arguments of libfabric.so.1: its name, its version nodes, and that it is never unloaded (threads of programs
//! that close it may still be in it).

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed=libfabric.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={dir}/libfabric.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfabric.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
