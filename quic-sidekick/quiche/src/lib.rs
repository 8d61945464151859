//! quiche 0.30.0 with the Sidekick hook.
//!
//! This crate contains none of quiche's source. Its build script copies the source of the pristine
//! crate, which cargo downloads as a build dependency, and inserts the hook: a log of the packets
//! sent, a way to declare packets lost before the end-to-end mechanism detects it, and the
//! congestion controller `cubic-rfc9438`. `build/insertions.rs` lists every change. With the log
//! off, which is the default, the hook does nothing.
//!
//! The crate exports all of quiche under the same names; see [quiche's own pages] for it.
//! [`sidekick`] has the hook's additions.
//!
//! # Using it in place of quiche
//!
//! `quic_sidekick::quiche` is this crate. For tokio-quiche to use it too, the application's
//! workspace needs `[patch.crates-io] quiche = { .. }` with the same path or git source. It must
//! name quiche itself by that source, or not at all: with `quiche = "0.30"` beside the patch, cargo
//! treats this crate and the pristine one as two versions that exclude each other.
//!
//! # Where the build script finds the pristine source
//!
//! In cargo's registry, then in directories that `cargo vendor` filled. If neither holds it, set
//! `QUICHE_PRISTINE_SRC` to the directory with quiche's `Cargo.toml`.
//!
//! # The C interface
//!
//! By default only the Rust library is built. For C, the crate `quic-sidekick-c` contains it
//! together with the plugin. For a static library alone: `cargo rustc -p quiche@0.30.100 --features
//! ffi --crate-type staticlib`.
//!
//! [quiche's own pages]: https://docs.rs/quiche/0.30.0
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::all,
    unused_qualifications,
    reason = "quiche's own code is included as it is; the hook's modules switch the lints on again"
)]

include!(concat!(env!("OUT_DIR"), "/quiche/lib.rs"));
