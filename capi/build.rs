//! Link arguments of libfabric.so.1: soname, version script, and `nodelete` (other threads may
//! still run its code when a program closes it), and the entry point that makes it a program.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed=libfabric.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={dir}/libfabric.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfabric.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-e,ofi_helper");
}
