//! Describes the library to pkg-config, in the directory where cargo puts it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    match describe() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            println!("cargo::error={sentence}");
            ExitCode::FAILURE
        }
    }
}

fn describe() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    let directory =
        |name: &str| std::env::var_os(name).map(PathBuf::from).ok_or(format!("{name} is not set"));
    let (own, out) = (directory("CARGO_MANIFEST_DIR")?, directory("OUT_DIR")?);
    // The hooked quiche's build script passes the directory of the pristine package's header.
    let quiche = directory("DEP_QUICHE_SIDEKICK_INCLUDE")?;
    let libdir = out.ancestors().find(|dir| dir.ends_with("build")).and_then(Path::parent);
    let libdir = libdir.ok_or("the output directory is not below `build`")?;
    let text = format!(
        "libdir={libdir}\nincludedir={include}\nquiche_includedir={quiche}\n\n\
         Name: quic-sidekick\n\
         Description: quiche with help from inside the network\n\
         URL: {url}\n\
         Version: {version}\n\
         Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} -lquicsidekick\n\
         Libs.private: -lstdc++ -lm -lpthread -ldl\n\
         Cflags: -I${{includedir}} -I${{quiche_includedir}}\n",
        libdir = libdir.display(),
        include = own.join("include").display(),
        quiche = quiche.display(),
        url = env!("CARGO_PKG_REPOSITORY"),
        version = env!("CARGO_PKG_VERSION"),
    );
    let path = libdir.join("quic-sidekick.pc");
    std::fs::write(&path, text).map_err(|error| {
        format!("cannot write {} ({error}); make the target directory writable", path.display())
    })
}
