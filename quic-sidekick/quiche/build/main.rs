//! Assembles the hooked quiche. It copies the pristine source, which cargo downloaded and verified
//! as a build dependency, to `OUT_DIR`, and applies the hook to the copy. Then it does the work of
//! quiche's own build script.

mod assemble;
mod insertions;
mod pristine;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use insertions::VERSION;

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            println!("cargo::error={sentence}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let manifest_dir = directory("CARGO_MANIFEST_DIR")?;
    let out_dir = directory("OUT_DIR")?;
    let hook_dir = manifest_dir.join("hook");
    println!("cargo::rerun-if-changed={}", hook_dir.display());
    println!("cargo::rerun-if-changed=build");
    for variable in [pristine::OVERRIDE, "CARGO_HOME"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }

    let (package, files) = pristine_source(&manifest_dir, &out_dir)?;
    println!("cargo::rerun-if-changed={}", package.join("src").display());
    // The tests read the pristine source and its example files from there.
    println!("cargo::rustc-env=QUICHE_PRISTINE={}", package.display());
    println!("cargo::metadata=include={}", package.join("include").display());

    let hooked = assemble::hook(assemble::includable(files), assemble::read_tree(&hook_dir)?)?;
    write_tree(&out_dir.join("quiche"), &hooked)?;
    like_upstream(&package, &out_dir)
}

/// The first copy of the pristine package with the right content.
fn pristine_source(
    manifest_dir: &Path,
    out_dir: &Path,
) -> Result<(PathBuf, Vec<assemble::File>), String> {
    let mut refusals = Vec::new();
    for package in pristine::candidates(manifest_dir, out_dir) {
        let checked = assemble::read_tree(&package.join("src")).and_then(|files| {
            assemble::verify(&files)?;
            Ok(files)
        });
        match checked {
            Ok(files) => return Ok((package, files)),
            Err(reason) => {
                refusals.push(format!("the source in {} was rejected: {reason}", package.display()))
            }
        }
    }
    if refusals.is_empty() {
        refusals.push(format!(
            "the source of quiche {VERSION} was found neither in cargo's registry nor in a vendor directory; set {} to \
             the directory that holds its Cargo.toml",
            pristine::OVERRIDE
        ));
    }
    Err(refusals.join("; "))
}

/// Replaces the directory `dir` by these files.
fn write_tree(dir: &Path, files: &[assemble::File]) -> Result<(), String> {
    let failed = |path: &Path, e: std::io::Error| {
        format!(
            "cannot write {} ({e}); make the target directory writable and build again",
            path.display()
        )
    };
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(|e| failed(dir, e))?;
    }
    for (name, text) in files {
        let path = dir.join(name);
        let parent = path.parent().unwrap_or(dir);
        std::fs::create_dir_all(parent).map_err(|e| failed(parent, e))?;
        std::fs::write(&path, text).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

/// The output of quiche's own build script for cargo, without linking a dynamic library, which this
/// package does not build.
fn like_upstream(package: &Path, out_dir: &Path) -> Result<(), String> {
    println!("cargo::rustc-check-cfg=cfg(boring_v5)");
    if cfg!(feature = "boringssl-boring-crate") {
        // boring-sys exports its version from 5.2 on. An older one counts as 4.
        if std::env::var("DEP_BORINGSSL_VERSION_MAJOR").is_ok_and(|major| major == "5") {
            println!("cargo::rustc-cfg=boring_v5");
        }
        println!("cargo::rustc-link-lib=static=ssl");
        println!("cargo::rustc-link-lib=static=crypto");
    }
    if cfg!(feature = "pkg-config-meta") {
        write_pkg_config(package, out_dir)?;
    }
    Ok(())
}

/// Writes the pkg-config file of the C library, in cargo's directory for libraries.
fn write_pkg_config(package: &Path, out_dir: &Path) -> Result<(), String> {
    let Some(libdir) =
        out_dir.ancestors().find(|dir| dir.ends_with("build")).and_then(Path::parent)
    else {
        return Err(
            "the output directory is not below `build`; build without the feature pkg-config-meta"
                .into(),
        );
    };
    let text = format!(
        "includedir={include}\nlibdir={libdir}\n\nName: quiche\nDescription: quiche library\n\
         URL: https://github.com/cloudflare/quiche\nVersion: {version}\n\
         Libs: -Wl,-rpath,${{libdir}} -L${{libdir}} -lquiche\nCflags: -I${{includedir}}\n",
        include = package.join("include").display(),
        libdir = libdir.display(),
        version = env!("CARGO_PKG_VERSION"),
    );
    let path = libdir.join("quiche.pc");
    std::fs::write(&path, text).map_err(|e| {
        format!("cannot write {} ({e}); make the target directory writable", path.display())
    })
}

fn directory(variable: &str) -> Result<PathBuf, String> {
    std::env::var_os(variable)
        .map(PathBuf::from)
        .ok_or_else(|| format!("{variable} is not set; run the build script through cargo"))
}
