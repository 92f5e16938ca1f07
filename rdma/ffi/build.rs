//! Link arguments of librdmaaddrinfo.so.1: its soname, and librdmacm's symbol version for its
//! functions.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed=librdmaaddrinfo.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={dir}/librdmaaddrinfo.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librdmaaddrinfo.so.1");
}
