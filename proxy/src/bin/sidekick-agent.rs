//! The `sidekick-agent` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    sidekick_proxy::agent_main()
}
