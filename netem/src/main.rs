//! `sidekick-lab`: experiments over an emulated path.

use std::process::ExitCode;

virtual_time::in_force!();

fn main() -> ExitCode {
    sidekick_netem::command::main()
}
