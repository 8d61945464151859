//! The command line of `sidekick-lab`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use crate::figures::plan::Shard;
use clap::{Args, Parser, Subcommand, ValueEnum};

const WORDS: &str = "\
Words:
  agent         sidekick-agent, which asks a proxy for help in place of other programs
  auto          the mode in which a program with the plugin chooses how to repair its losses
  backend       what carries the packets: a simulation, or links that the lab or the kernel emulates
  near segment  the path from the helped program to the proxy; the far segment begins at the proxy
  proxy         a Sidekick proxy, which reports the packets that pass it, and keeps copies
  virtual time  a clock that jumps to the next event, so a run takes a fraction of its duration";

/// Run transports over an emulated path of two or three segments, with and without a Sidekick proxy
#[derive(Debug, Parser)]
#[command(name = "sidekick-lab", version, after_help = WORDS)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the scenarios and the settings
    List,
    /// Run a scenario
    Run(Run),
    /// Run your own command over the path of a scenario
    ///
    /// COMMAND runs before the near segment, on the sender's host, with this terminal. In the
    /// scenarios of downloads that is the client. Its environment names the hosts:
    /// SIDEKICK_SENDER_IP and SIDEKICK_RECEIVER_IP, SIDEKICK_SENDER_IPV6 and
    /// SIDEKICK_RECEIVER_IPV6 if the kernel has IPv6, and SIDEKICK_PROXY_ADDRESS if a proxy runs
    /// and the sender need not discover it. The hosts have no other network.
    ///
    /// sidekick-proxy runs between the segments if the scenario's sidekick.mode is not off. With
    /// --agent it runs in any scenario, unless --set sets that mode to off. The scenario's flow
    /// does not run.
    ///
    /// The exit status is that of COMMAND, or 125 if the lab could not run it. The lab passes a
    /// signal on to COMMAND, and kills it if it has not ended 5 seconds later. The terminal sends
    /// Ctrl-C directly to COMMAND, as without a lab.
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(Exec),
    /// Upload and download one file over a lossy path, with and without a Sidekick proxy
    Demo(Demo),
    /// Make a call over a lossy path with and without a Sidekick proxy, and keep its sound
    DemoAudio(DemoAudio),
    /// Download a file over a lossy satellite path, with and without a Sidekick proxy
    DemoSatellite(DemoPath),
    /// Upload a file and make a call by unmodified programs, without an agent and with one
    DemoAgent(DemoPath),
    /// Predict what help does on your link, from a recording of it
    ///
    /// FILE is what `sidekick-agent measure --trace FILE` wrote. Prints what the recording says of
    /// the link, then the goodput of uploads and downloads over a path whose near segment replays
    /// it, and the share of a call's packets that are missing for 40 ms or for good: alone, with
    /// help of a program with the plugin (linked), and with that of an agent. Each of the --runs
    /// begins at another time of the recording.
    ///
    /// Loss, jitter and late packets are those of the recording. The delay is half of its shortest
    /// round trip, and the rate the highest in a tenth of a second, which the link may exceed. All
    /// else is that of the scenarios upload-paper, download-paper, audio-paper and
    /// audio-far-proxy, with transfers of 5 MB and calls of 30 s. --set changes any setting of all
    /// flows, such as near.rate_mbit, far.delay_ms or far.rate_mbit.
    ///
    /// It runs in virtual time on all cores, so the same options give the same figures on every
    /// machine. A run that fails counts as a goodput of 0, or as a call of which nothing arrives.
    Predict(Predict),
    /// Run every experiment in virtual time, and write plots, heat maps and tables to one page
    ///
    /// Writes DIR/index.html, a page that needs no other file; a CSV file for each plot, heat map
    /// and table; and DIR/shard-1-of-1.jsonl with the record of every run. It uses all cores. If a
    /// run fails, the others continue. The page and standard error show its command line, and the
    /// exit status is 1.
    ///
    /// To spread the work over machines, run `--shard I/N --out DIR` for each I from 1 to N.
    /// Collect the shard files, and run `--merge FILES --out DIR` once.
    Figures(Figures),
    /// Compare help with other senders or no help, on random paths
    ///
    /// --paths lossy compares `auto` with BBR2, path-aware BBR2 and re-injection over BBR2. In
    /// about half of the topologies, the near delay is longer than the far delay. Near loss is up
    /// to 10 %. Some topologies have it in bursts. The ratio of a topology is the mean goodput of
    /// `auto` divided by the best mean of the other three, with the same seeds. A topology whose
    /// ratio is below 0.98 runs 20 seeds in all, or --seeds if that is more. It prints the
    /// distribution of the ratios, and the worst topologies with the command lines that repeat
    /// their runs of `auto`. --json has those of the others, too. With the defaults and a release
    /// build it takes about four minutes of processor time, on all cores together.
    ///
    /// --paths congested compares flows with help to the same flows without it, where a short
    /// queue, RED, CoDel or a policer limits the near segment. Most flows have a plain flow beside
    /// them. It prints three ratios of each path: the flow's goodput, that of the plain flow, and
    /// the packets that the near segment dropped by congestion, with 20 more on both sides. It
    /// lists the paths whose ratio is below 0.97, below 0.85 or above 1.5, with the command lines
    /// that repeat them.
    ///
    /// --paths far compares downloads past a proxy that is 20 to 560 ms away, with an agent that
    /// puts them in order and without. It lists the paths whose goodput is below 0.98 by that.
    ///
    /// All run in virtual time, so the same options give the same figures on every machine. A run
    /// that fails counts as a goodput of 0: a connection may time out in a burst of loss. A path is
    /// left out if nothing arrives by the senders that its ratio divides by.
    Sweep(Sweep),
    /// Repeat recorded runs of other backends in virtual time, and report whether they agree
    ///
    /// Goodput agrees within 10 %, the 99th percentile of de-jitter delay within 5 ms, and the
    /// packets lost at random within the limits of chance. A run cannot be trusted if its machine
    /// was too slow. The exit status is 1 if a trusted run does not agree, or if no run can be
    /// trusted.
    Compare(Compare),
}

#[derive(Debug, Args)]
pub(super) struct Compare {
    /// Files of lines that `sidekick-lab run --json` printed
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Figures {
    /// Write the page, the CSV files and the records here; create the directory if necessary
    #[arg(long, value_name = "DIR")]
    pub(super) out: PathBuf,
    /// Run fewer points and seeds: under three minutes on two cores
    #[arg(long)]
    pub(super) quick: bool,
    /// Run only this experiment; may be repeated. The links of the page show the names
    #[arg(long, value_name = "EXPERIMENT")]
    pub(super) only: Vec<String>,
    /// Compare with these records of other backends: lines that `sidekick-lab run --json` printed
    #[arg(long, value_name = "FILE")]
    pub(super) compare: Option<PathBuf>,
    /// Do the I-th of N parts of the runs, and write DIR/shard-I-of-N.jsonl instead of a page
    #[arg(long, value_name = "I/N", conflicts_with = "merge")]
    pub(super) shard: Option<Shard>,
    /// Run nothing: make the page from these shard files, or from all in these directories
    /// [default: those in --out]. Repeat the --quick, --only and --compare of the shards
    #[arg(long, value_name = "PATH", num_args = 0..)]
    pub(super) merge: Option<Vec<PathBuf>>,
}

#[derive(Debug, Args)]
pub(super) struct Predict {
    /// A recording of your link
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// The number of runs of each flow with each kind of help
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u64).range(1..=1000),
    )]
    pub(super) runs: u64,
    /// Change a setting (`sidekick-lab list` shows them); may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Print an object with the summary of the recording on standard output, then one for each row
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Sweep {
    /// What limits the paths
    #[arg(long, value_enum, default_value_t = Paths::Lossy)]
    pub(super) paths: Paths,
    /// The number of random paths
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        value_parser = clap::value_parser!(u64).range(1..=100_000),
    )]
    pub(super) topologies: u64,
    /// The number of seeds of each path
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=1000),
    )]
    pub(super) seeds: u64,
    /// Seed of the paths
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// The number of runs at a time [default: one for each core]
    #[arg(long, value_name = "N")]
    pub(super) jobs: Option<NonZeroUsize>,
    /// Write a plot of the distribution here, as an SVG
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// Print an object for each path on standard output, the worst first, and one for all of them
    #[arg(long)]
    pub(super) json: bool,
}

/// The random paths of a sweep.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Paths {
    /// Random loss; help against the best of other senders
    Lossy,
    /// Congestion on the near segment; help against no help
    Congested,
    /// A proxy far from the client; downloads that the agent puts in order, against no help
    Far,
}

#[derive(Debug, Args)]
pub(super) struct Run {
    /// A scenario's name, or the path of a .toml file
    pub(super) scenario: String,
    /// Change a setting (`sidekick-lab list` shows them); may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// The number of runs; each uses the next seed
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=10_000),
    )]
    pub(super) runs: u64,
    /// What carries the packets: sim (virtual time), user (real programs, links emulated by the
    /// lab) or tc (real programs, links emulated by the kernel, which needs sch_netem)
    #[arg(long, default_value = "sim")]
    pub(super) backend: String,
    /// Transfer this file instead of one made from the seed (backends user and tc)
    #[arg(long, value_name = "PATH")]
    pub(super) file: Option<PathBuf>,
    /// Write the packets that the links received and delivered to DIR/seed-N/near-sent.pcap,
    /// near-delivered.pcap, far-sent.pcap and far-delivered.pcap, and the same for a middle segment
    /// (backends sim and user)
    #[arg(long, value_name = "DIR")]
    pub(super) pcap: Option<PathBuf>,
    /// Write what an agent records of the near segment to DIR/seed-N.trace, for `predict` (with
    /// --set sidekick.mode=measure)
    #[arg(long, value_name = "DIR")]
    pub(super) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

const EXEC_EXAMPLES: &str = "\
Examples:
  sidekick-lab exec upload-paper --set near.loss_percent=4 -- \\
      sh -c 'ping -c 100 -i 0.1 $SIDEKICK_RECEIVER_IP'
  sidekick-lab exec download-paper --set sidekick.mode=agent-in-order \\
      --peer 'python3 -m http.server 8080' -- \\
      sh -c 'curl --retry 9 --retry-connrefused http://$SIDEKICK_RECEIVER_IP:8080/'";

#[derive(Debug, Args)]
pub(super) struct Exec {
    /// A scenario's name, or the path of a .toml file
    pub(super) scenario: String,
    /// Change a setting (`sidekick-lab list` shows them); may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Seed of the losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Run no proxy, even if the scenario has one
    #[arg(long)]
    pub(super) no_proxy: bool,
    /// Run this command line, the peer, by `sh -c` on the receiver's host. The lab starts it before
    /// COMMAND, and stops it when COMMAND ends. COMMAND may start before the peer listens
    #[arg(long, value_name = "COMMAND LINE")]
    pub(super) peer: Option<OsString>,
    /// Write the peer's output here, and not to standard error
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub(super) peer_log: Option<PathBuf>,
    /// Run this command line between the segments, on the proxy's host, as --peer on the
    /// receiver's. That host is 10.77.1.2 for the sender, and 10.77.2.1 for the receiver
    #[arg(long, value_name = "COMMAND LINE")]
    pub(super) middle: Option<OsString>,
    /// Run sidekick-agent, or the agent at this path, on the sender's host, in any mode. Without a
    /// mode, this sets `sidekick.mode=agent`
    #[arg(long, value_name = "PATH", num_args = 0..=1)]
    pub(super) agent: Option<Option<PathBuf>>,
    /// Write the summary here as one JSON object, and not to standard error
    #[arg(long, value_name = "FILE")]
    pub(super) json_file: Option<PathBuf>,
    /// The directory of sidekick-proxy and sidekick-agent [default: that of this program]
    #[arg(long, value_name = "DIR")]
    pub(super) programs: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(super) struct DemoAudio {
    /// Send this WAV file instead of a tone
    #[arg(long, value_name = "PATH")]
    pub(super) wav: Option<PathBuf>,
    /// The length of each of the two calls in seconds
    #[arg(
        long,
        value_name = "N",
        default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(5..=600),
    )]
    pub(super) seconds: u32,
    /// Write the WAV files and the plot here; overwrite files that exist
    #[arg(long, value_name = "DIR", default_value = "demo-audio")]
    pub(super) out: PathBuf,
    #[command(flatten)]
    pub(super) path: DemoPath,
}

#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Upload this file, of at least 4 MiB, instead of 10 MiB made from the seed. The second table
    /// uploads its first 6 MiB at most, and the third downloads its first 3 MiB
    #[arg(long, value_name = "PATH")]
    pub(super) file: Option<PathBuf>,
    /// Also write the figures as a picture to DIR/summary.svg; overwrite a file that exists
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) path: DemoPath,
}

#[derive(Debug, Args)]
pub(super) struct DemoPath {
    /// What emulates the links: user (the lab) or tc (the kernel, which needs sch_netem)
    #[arg(long, default_value = "user")]
    pub(super) backend: String,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(super) struct Common {
    /// Seed of the file, and of the losses; the backend tc takes no seed for these
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// The directory of sidekick-proxy and the example programs [default: that of this program]
    #[arg(long, value_name = "DIR")]
    pub(super) programs: Option<PathBuf>,
    /// Print JSON on standard output
    #[arg(long)]
    pub(super) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_options_of_a_run_are_parsed() {
        let line = "sidekick-lab run upload-paper --backend user --seed 7 --runs 3 \
                    --set near.loss_percent=2 --set flow.cc=bbr2 --json";
        let Command::Run(run) = Cli::parse_from(line.split_whitespace()).command else {
            panic!("not run")
        };
        assert_eq!(
            (run.scenario.as_str(), run.runs, run.common.seed, run.common.json),
            ("upload-paper", 3, 7, true)
        );
        assert_eq!(run.set, ["near.loss_percent=2", "flow.cc=bbr2"]);
    }

    #[test]
    fn figures_are_made_whole_in_shards_or_from_shards() {
        let figures = |line: &str| match Cli::try_parse_from(line.split_whitespace())?.command {
            Command::Figures(figures) => Ok::<_, clap::Error>(figures),
            _ => panic!("not figures"),
        };
        let plain = figures("sidekick-lab figures --quick --out o").unwrap();
        assert!(plain.quick && plain.shard.is_none() && plain.merge.is_none());
        let shard = figures("sidekick-lab figures --shard 2/4 --out o").unwrap();
        assert_eq!(shard.shard, Shard::new(2, 4));
        let here = figures("sidekick-lab figures --merge --out o").unwrap();
        assert_eq!(here.merge, Some(Vec::new()));
        let there = figures("sidekick-lab figures --merge a b --out o").unwrap();
        assert_eq!(there.merge, Some(vec!["a".into(), "b".into()]));
        for bad in ["--shard 5/4 --out o", "--shard 1/4 --merge --out o", "--quick"] {
            assert!(figures(&format!("sidekick-lab figures {bad}")).is_err(), "{bad}");
        }
    }
}
