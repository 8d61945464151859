//! quiche 0.30.0 with the Sidekick hook.
//!
//! This crate holds none of quiche's source. Its build script copies the source of the pristine
//! crate, which cargo downloads as a build dependency, and inserts the hook: a log of the packets
//! sent, a way to declare packets lost before the end-to-end mechanism can know, and the congestion
//! controller `cubic-rfc9438`. `build/insertions.rs` is the whole list of changes. With the log
//! off, which is the default, the hook does nothing.
//!
//! Everything that quiche offers is here under the same names; see [quiche's own pages] for it.
//! What the hook adds is in [`sidekick`].
//!
//! # Using it in place of quiche
//!
//! `quic_sidekick::quiche` is this crate. For tokio-quiche to use it too, the application's
//! workspace has `[patch.crates-io] quiche = { .. }` with the same path or git source, and names
//! quiche itself by that source, or not at all: with `quiche = "0.30"` beside the patch, cargo
//! takes this crate and the pristine one for two versions that exclude each other.
//!
//! # Where the pristine source is looked for
//!
//! In cargo's registry, then in directories that `cargo vendor` filled. Set `QUICHE_PRISTINE_SRC`
//! to the directory with quiche's `Cargo.toml` where neither holds it.
//!
//! # The C interface
//!
//! Only the Rust library is built by default. For C, the crate `quic-sidekick-c` has it together
//! with the plugin. Alone, as a static one: `cargo rustc -p quiche@0.30.100 --features ffi
//! --crate-type staticlib`.
//!
//! [quiche's own pages]: https://docs.rs/quiche/0.30.0
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::all,
    unused_qualifications,
    reason = "quiche's own code is included as it is; the hook's modules switch the lints on again"
)]

include!(concat!(env!("OUT_DIR"), "/quiche/lib.rs"));
