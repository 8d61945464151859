//! quiche 0.30.0 with the Sidekick hook.
//!
//! This crate holds none of quiche's source. Its build script copies the source of the pristine crate, which cargo
//! downloads as a build dependency, and inserts the hook: a log of the packets sent, a way to declare packets lost before
//! the end-to-end mechanism can know, and the congestion controller `cubic-rfc9438`. `build/insertions.rs` is the whole
//! list of changes. With the log off, which is the default, the hook does nothing.
//!
//! Everything that quiche offers is here under the same names; see [quiche's own pages] for it. What the hook adds is in
//! [`sidekick`].
//!
//! # Where the pristine source is looked for
//!
//! In cargo's registry, then in directories that `cargo vendor` filled. Set `QUICHE_PRISTINE_SRC` to the directory with
//! quiche's `Cargo.toml` where neither holds it.
//!
//! # The C interface
//!
//! Only the Rust library is built by default. For C:
//! `cargo rustc -p quiche --features ffi --crate-type staticlib` (or `cdylib`).
//!
//! [quiche's own pages]: https://docs.rs/quiche/0.30.0
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::all,
    unused_qualifications,
    reason = "quiche's own code is included as it is; the hook's modules switch the lints on again"
)]

include!(concat!(env!("OUT_DIR"), "/quiche/lib.rs"));
