//! A command of the user over the path of a scenario.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, Write, stderr};
use std::net::Ipv6Addr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AGENT, Bench, PROXY, RunError, Testbed, failed};
use crate::enclosure::{INTERRUPTED, OWN_VARIABLES};
use crate::namespace::{Namespace, NamespaceError};
use crate::path::{PathCounters, PathError};
use crate::programs::{Program, REST_WITHIN, STOPPED_WITHIN, end_of, when_ended};
use crate::report::{seconds, slowness, table};
use crate::scenario::{ProxyFate, Scenario, Sidekick};
use crate::topology::{PROXY_NEAR, RECEIVER, RECEIVER_V6, SENDER, SENDER_V6, Topology};

/// The exit status of a command that a signal ended is this number plus the signal, as in shells.
const BY_SIGNAL: i32 = 128;

/// A command to run on the path, and the programs beside it.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The command on the sender's host, and its arguments. It has this process's standard streams.
    pub command: Vec<OsString>,
    /// A command line for `sh -c`, on the receiver's host.
    pub peer: Option<OsString>,
    /// A command line for `sh -c`, on the proxy's host.
    pub middle: Option<OsString>,
    /// The file for the peer's output. `None` sends it to standard error, each line after `peer: `.
    pub peer_log: Option<PathBuf>,
    /// The program of an agent on the sender's host. It first prints a line `ready: ...`, which in
    /// the mode `agent-in-order` ends in `, in order`, and on SIGINT one with its summary in JSON.
    pub agent: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExecRecord {
    pub scenario: String,
    pub seed: u64,
    /// Changes to the scenario's settings, as `--set` takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    pub command: Vec<String>,
    /// Its exit status, or 128 plus the signal that ended it.
    pub exit_code: u8,
    pub time_s: f64,
    /// Counts of all four links, from the start of the path to the end of the command.
    pub links: PathCounters,
    /// The proxy's summary; `null` if none ran, or if it printed none.
    pub proxy: Value,
    /// The agent's summary; `null` if none ran, or if it printed none.
    pub agent: Value,
    /// Remarks that readers of the figures need.
    pub remarks: Vec<String>,
}

#[derive(Debug)]
enum Event {
    Ended,
    /// The outer process of the lab caught this signal.
    Told(Signal),
}

/// Passes signals from the outer process of the lab to the command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals(Arc<Mutex<Option<Sender<Event>>>>);

impl Signals {
    /// Passes a signal on to the command, or ends this process if there is no command yet. `None`
    /// stands for a signal that the terminal has also sent to the command.
    pub(crate) fn hear(&self, signal: Option<Signal>) {
        match (&*self.lock(), signal) {
            (None, _) => std::process::exit(i32::from(INTERRUPTED)),
            (Some(events), Some(signal)) => drop(events.send(Event::Told(signal))),
            (Some(_), None) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sender<Event>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command to its end, or kills it [`STOPPED_WITHIN`] after a signal.
    fn run(&self, mut command: Command, host: &Namespace) -> Result<ExitStatus, RunError> {
        let program = command.get_program().display().to_string();
        let (sender, events) = channel();
        *self.lock() = Some(sender.clone());
        let mut child =
            host.enter(move || command.spawn()).map_err(PathError::from)?.map_err(|error| {
                RunError::Failed(match error.kind() {
                    io::ErrorKind::NotFound => {
                        format!("there is no program `{program}`: install it, or give its path")
                    }
                    _ => format!("cannot start {program}: {error}; name a program that can run"),
                })
            })?;
        when_ended(&child, move || drop(sender.send(Event::Ended)));
        let mut told = false;
        loop {
            let event = if told {
                events.recv_timeout(STOPPED_WITHIN)
            } else {
                events.recv().map_err(RecvTimeoutError::from)
            };
            match event {
                Ok(Event::Told(signal)) => {
                    told = true;
                    let _ = kill(pid(&child), signal);
                }
                Err(RecvTimeoutError::Timeout) => {
                    told = false;
                    let _ = child.kill();
                }
                Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => {
                    return child.wait().map_err(failed("wait for the command"));
                }
            }
        }
    }
}

/// The process ID of a child that was not waited for yet.
fn pid(child: &Child) -> Pid {
    // The kernel's process IDs are signed.
    Pid::from_raw(child.id().cast_signed())
}

impl Bench<'_> {
    /// Runs a command on the sender's host of the path of `scenario`, with the proxy if the
    /// scenario has one. The command replaces the scenario's flow.
    pub(crate) fn exec(
        &self,
        scenario: &Scenario,
        seed: u64,
        task: &Task,
        signals: &Signals,
    ) -> Result<ExecRecord, RunError> {
        let mut testbed = Testbed::new(self, scenario, seed)?;
        let variables =
            variables(testbed.path.topology(), scenario.sidekick).map_err(PathError::from)?;
        let hosts = testbed.path.topology();
        let peer = Peer::start("peer", &task.peer, &task.peer_log, &variables, &hosts.receiver)?;
        let middle = Peer::start("middle", &task.middle, &None, &variables, &hosts.proxy)?;
        // A program chooses the IP version, and browsers prefer IPv6.
        let has_ipv6 = testbed.path.topology().proxy.knows_ipv6().map_err(PathError::from)?;
        testbed.start_proxy_at(if has_ipv6 {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            PROXY_NEAR.into()
        })?;
        if let Some(proxy) = &mut testbed.proxy {
            proxy.wait_until_ready()?;
        }
        let hosts = testbed.path.topology();
        let agent = task.agent.as_deref().map(|program| testbed.start_agent(program));
        let agent = agent.transpose()?;

        let start = now();
        let status = signals.run(command(&task.command, &variables), &hosts.sender)?;
        let time_s = start.elapsed().as_secs_f64();

        let links = testbed.path.counters()?;
        let mut remarks: Vec<String> = slowness(links.overruns(), links.late_percent()).collect();
        for peer in [peer, middle].into_iter().flatten() {
            let name = peer.name;
            if let Some(status) = peer.stop().map_err(failed("wait for the peer"))? {
                remarks.push(format!("the {name} ended during the run: {status}"));
            }
        }
        let mut summary = |name, program: Option<Program>, signal| match program {
            Some(program) => end(name, program, signal, &mut remarks),
            None => Ok(Value::Null),
        };
        let agent = summary(AGENT, agent, Signal::SIGINT)?;
        let proxy = summary(PROXY, testbed.proxy.take(), Signal::SIGTERM)?;
        Ok(ExecRecord {
            scenario: scenario.name.clone(),
            seed,
            settings: Vec::new(),
            command: task.command.iter().map(|word| word.display().to_string()).collect(),
            exit_code: exit_code(status),
            time_s,
            links,
            proxy,
            agent,
            remarks,
        })
    }
}

#[allow(clippy::disallowed_methods, reason = "the edge: how long a real program runs")]
fn now() -> Instant {
    Instant::now()
}

/// The environment variables of the command and of its peers. Gives the hosts IPv6 addresses if the
/// kernel has IPv6.
fn variables(
    hosts: &Topology,
    sidekick: Sidekick,
) -> Result<Vec<(&'static str, String)>, NamespaceError> {
    let mut variables = vec![
        ("SIDEKICK_SENDER_IP", SENDER.to_string()),
        ("SIDEKICK_RECEIVER_IP", RECEIVER.to_string()),
    ];
    if hosts.sender.knows_ipv6()? {
        hosts.add_ipv6()?;
        variables.push(("SIDEKICK_SENDER_IPV6", SENDER_V6.to_string()));
        variables.push(("SIDEKICK_RECEIVER_IPV6", RECEIVER_V6.to_string()));
    }
    if sidekick.has_proxy() && sidekick.proxy != ProxyFate::Found {
        variables.push(("SIDEKICK_PROXY_ADDRESS", sidekick.proxy_address().to_string()));
    }
    Ok(variables)
}

fn command(words: &[OsString], variables: &[(&'static str, String)]) -> Command {
    let (program, arguments) = words
        .split_first()
        .map_or((OsStr::new(""), &[][..]), |(first, rest)| (first.as_os_str(), rest));
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().map(|(name, value)| (name, value)));
    for variable in OWN_VARIABLES {
        command.env_remove(variable);
    }
    command
}

/// Ends a program. Returns its summary, which is the last line of its output. Without a summary, it
/// returns `null` and adds a remark.
fn end(
    name: &'static str,
    mut program: Program,
    signal: Signal,
    remarks: &mut Vec<String>,
) -> Result<Value, RunError> {
    let waiting = failed("wait for the programs of the run");
    if let Some(last_words) = program.ended().map_err(&waiting)? {
        remarks.push(format!("{name} ended during the run: {last_words}"));
        return Ok(Value::Null);
    }
    let Some(ended) = program.end(signal).map_err(waiting)? else {
        remarks.push(format!("{name} did not end, and was killed"));
        return Ok(Value::Null);
    };
    let summary = serde_json::from_str(ended.output.lines().last().unwrap_or_default());
    Ok(summary.unwrap_or_else(|_| {
        remarks.push(format!("{name} printed no summary: {}", ended.why()));
        Value::Null
    }))
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(BY_SIGNAL + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// A command line on another host and all programs that it starts, as one process group.
#[derive(Debug)]
struct Peer {
    name: &'static str,
    child: Child,
    /// Yields one message: the peer has ended.
    end: Receiver<()>,
    /// Disconnects after the last line was shown.
    shown: Option<Receiver<()>>,
}

impl Peer {
    /// Starts a command line, if the task has one. Its output goes to a file, or to standard error.
    fn start(
        name: &'static str,
        line: &Option<OsString>,
        log: &Option<PathBuf>,
        variables: &[(&'static str, String)],
        host: &Namespace,
    ) -> Result<Option<Self>, RunError> {
        let Some(line) = line else { return Ok(None) };
        let mut command = command(&["sh".into(), "-c".into(), line.clone()], variables);
        command.stdin(Stdio::null()).process_group(0);
        let shown = match log {
            Some(path) => {
                write_to(&mut command, path).map_err(|error| {
                    let path = path.display();
                    let sentence = "give --peer-log a file that can be written";
                    RunError::Failed(format!("cannot write {path}: {error}; {sentence}"))
                })?;
                None
            }
            None => {
                let shown = show_output(name, &mut command);
                Some(shown.map_err(failed("make a pipe for the peer"))?)
            }
        };
        let child = host
            .enter(move || command.spawn())
            .map_err(PathError::from)?
            .map_err(failed("start sh for the peer"))?;
        Ok(Some(Self { name, end: end_of(&child), child, shown }))
    }

    /// Ends the peer, and waits until all its output is shown. If the peer ended before with a
    /// failure, returns its exit status.
    fn stop(mut self) -> io::Result<Option<ExitStatus>> {
        let before = self.child.try_wait()?;
        let _ = killpg(pid(&self.child), Signal::SIGTERM);
        if before.is_none() {
            let _ = self.end.recv_timeout(STOPPED_WITHIN);
        }
        self.kill();
        if let Some(shown) = self.shown.take() {
            let _ = shown.recv_timeout(REST_WITHIN);
        }
        Ok(before.filter(|status| !status.success()))
    }

    fn kill(&mut self) {
        // The group exists as long as one of its programs runs.
        let _ = killpg(pid(&self.child), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Lets a command write its output to a file.
fn write_to(command: &mut Command, path: &FilePath) -> io::Result<()> {
    let file = File::create(path)?;
    command.stdout(file.try_clone()?).stderr(file);
    Ok(())
}

/// Shows the output of a command on standard error. The channel disconnects at the end of the
/// output.
fn show_output(name: &'static str, command: &mut Command) -> io::Result<Receiver<()>> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let (showing, shown) = channel();
    std::thread::spawn(move || {
        show_lines(name, reader);
        drop(showing);
    });
    Ok(shown)
}

fn show_lines(name: &str, from: PipeReader) {
    let prefix = format!("{name}: ").into_bytes();
    let mut from = BufReader::new(from);
    let mut line = prefix.clone();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        // One write, so that lines of the command do not mix with it.
        let _ = stderr().write_all(&line);
        line.truncate(prefix.len());
    }
}

impl ExecRecord {
    /// A table of the links, and sentences about the run.
    pub(crate) fn summary(&self) -> String {
        let Self { scenario, seed, exit_code, time_s, .. } = self;
        let program = self.command.first().map_or("", String::as_str);
        let mut text = format!(
            "{scenario}, seed {seed}: {program} ended with {exit_code} after {}\n{}\n",
            seconds(*time_s),
            self.table()
        );
        for (name, summary) in [("proxy", &self.proxy), ("agent", &self.agent)] {
            if !summary.is_null() {
                text += &format!("{name}: {}\n", figures(summary));
            }
        }
        for remark in &self.remarks {
            text += &format!("{remark}\n");
        }
        text
    }

    fn table(&self) -> String {
        let PathCounters { near, far, .. } = self.links;
        let rows = [
            ("near, to the receiver", near.to_receiver.link),
            ("near, to the sender", near.to_sender.link),
            ("far, to the receiver", far.to_receiver.link),
            ("far, to the sender", far.to_sender.link),
        ];
        let header =
            ["link", "packets", "delivered", "bytes", "lost at random", "congestion", "otherwise"];
        let rows = rows.map(|(name, link)| {
            let otherwise = link.lost_outage + link.lost_mtu;
            let figures = [link.packets, link.delivered, link.delivered_bytes, link.lost_random];
            let figures = figures.into_iter().chain([link.congested(), otherwise]);
            let figures = figures.map(|figure| figure.to_string());
            [name.to_owned()].into_iter().chain(figures).collect()
        });
        table(&header, rows, 1).to_string()
    }
}

/// The figures of a summary that are not 0.
fn figures(summary: &Value) -> String {
    let Value::Object(entries) = summary else { return summary.to_string() };
    let figures: Vec<String> = entries
        .iter()
        .filter(|(_, value)| value.as_f64().is_some_and(|figure| figure != 0.0))
        .map(|(name, value)| format!("{} {value}", name.replace('_', " ")))
        .collect();
    if figures.is_empty() { "all figures are 0".to_owned() } else { figures.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_shows_what_is_not_0() {
        let summary = |text| figures(&serde_json::from_str(text).unwrap());
        assert_eq!(
            summary(r#"{"counted":12,"quack_bytes":0,"near_rtt_ms":2.5,"name":"x"}"#),
            "counted 12, near rtt ms 2.5"
        );
        assert_eq!(summary(r#"{"counted":0}"#), "all figures are 0");
    }

    #[test]
    fn a_status_is_that_of_a_shell() {
        // The format of wait(2): the exit code in the second byte, or the signal in the first.
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
    }
}
