//! `include/quic_sidekick.h` is cbindgen's output for this crate.
//! `SIDEKICK_UPDATE=1 cargo test -p quic-sidekick-c --test header` rewrites it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

const HEAD: &str = "\
/* The plugin for programs that use quiche's C interface. cbindgen makes this file from the crate
 * quic-sidekick-c.
 *
 * Each pointer must point to an object of its type, or be NULL. Only one thread at a time may use a
 * connection and its help.
 */";

#[test]
fn the_header_matches_the_library() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(HEAD.to_owned()),
        include_guard: Some("QUIC_SIDEKICK_H".to_owned()),
        cpp_compat: true,
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h", "sys/socket.h"]
            .map(str::to_owned)
            .into(),
        includes: vec!["quiche.h".to_owned()],
        style: cbindgen::Style::Both,
        usize_is_size_t: true,
        documentation_style: cbindgen::DocumentationStyle::C,
        line_length: 100,
        export: cbindgen::ExportConfig {
            rename: [
                named("Connection", "quiche_conn"),
                named("sockaddr", "struct sockaddr"),
                named("sockaddr_storage", "struct sockaddr_storage"),
            ]
            .into(),
            ..Default::default()
        },
        ..Default::default()
    };
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_crate(package)
        .with_config(config)
        .generate()
        .unwrap()
        .write(&mut made);
    let path = package.join("include/quic_sidekick.h");
    if std::env::var_os("SIDEKICK_UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), String::from_utf8(made).unwrap());
}
