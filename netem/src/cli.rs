//! The command line of `sidekick-lab`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Run real programs over an emulated two-segment path, and see what a Sidekick does for them
#[derive(Debug, Parser)]
#[command(name = "sidekick-lab", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Name the scenarios and the settings
    List,
    /// Run a scenario
    Run(Run),
    /// Upload one file with several senders over the same lossy path, and compare
    Demo(Demo),
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// A scenario's name, or the path of a .toml file
    pub(crate) scenario: String,
    /// Change a setting (`sidekick-lab list` names them); may be given several times
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// How often to run it, with a seed that is higher by one each time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) runs: u64,
    /// Upload this file, and not one made from the seed
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Upload this file, and not 10 MiB made from the seed
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Who makes the links: user (this program) or tc (the kernel, where it has sch_netem)
    #[arg(long, default_value = "user")]
    pub(crate) backend: String,
    /// Seed of the losses and of the file
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where sidekick-proxy, h3-upload and h3-upload-server are [default: beside this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) programs: Option<PathBuf>,
    /// Print JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_fixed_form_is_understood() {
        let line = "sidekick-lab run upload-paper --backend user --seed 7 --runs 3 --set near.loss_percent=2 \
                    --set flow.cc=bbr2 --json";
        let Command::Run(run) = Cli::parse_from(line.split_whitespace()).command else { panic!("not run") };
        assert_eq!(
            (run.scenario.as_str(), run.runs, run.common.seed, run.common.json),
            ("upload-paper", 3, 7, true)
        );
        assert_eq!(run.set, ["near.loss_percent=2", "flow.cc=bbr2"]);
    }
}
