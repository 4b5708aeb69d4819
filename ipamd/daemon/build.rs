//! Passes arguments to the linker of `ferrule-ipamd`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The table of relocations takes 1.3 MiB of resident memory otherwise (docs/decisions/0017). glibc reads the packed
    // form since 2.36.
    if std::env::var_os("CARGO_CFG_TARGET_ENV").is_some_and(|env| env == "gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
