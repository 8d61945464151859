//! The `sidekick-proxy` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    sidekick_proxy::main()
}
