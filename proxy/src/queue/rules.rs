//! The rules of the firewall by which arriving packets pass a queue.
//!
//! They stand in the table that sees packets as they are on the wire, before address translation is
//! undone, for this host's own flows and for those that it forwards. With iptables, that is a chain
//! of their own behind the rules that `mangle` has in PREROUTING, since a packet that a program has
//! let pass skips the rest of the table. With nftables, it is a table of their own, in which
//! nothing can be skipped. Both names have the number of the queue, so that what a killed agent has
//! left is recognised, and no other agent's rules are touched.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use thiserror::Error;

/// The queues that programs have, one in each line, which begins with its number.
const QUEUES: &str = "/proc/thread-self/net/netfilter/nfnetlink_queue";
/// Most characters of a program's message.
const MOST_SAID: usize = 300;

/// Why there are no rules, for the operator.
#[derive(Debug, Error)]
pub enum RulesError {
    /// A character would have a meaning in a rule.
    #[error("a rule of the firewall cannot name the interface {0:?}")]
    Interface(String),
    /// No program to make rules with.
    #[error("a queue for packets needs iptables or nft: install one of them")]
    NoProgram,
    /// The kernel cannot do what nft asks for.
    #[error(
        "nft cannot pass packets to a queue, since the kernel lacks its module nft_queue: install \
         iptables, or load that module ({0})"
    )]
    NoExpression(String),
    /// A program said this.
    #[error("{0} cannot change the rules for the queue: {1}")]
    Refused(&'static str, String),
    /// Neither program lists its rules.
    #[error(
        "cannot look for rules of the firewall: run this as root, with iptables or nft installed"
    )]
    NotListed,
    /// A program did not run.
    #[error("cannot run {0}: {1}")]
    NotRun(&'static str, io::Error),
}

/// What sets up the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// iptables and ip6tables, whichever of their variants the system has.
    Iptables,
    /// nft.
    Nft,
}

/// The programs of iptables for a family: one lists rules, the other changes them all at once.
const FAMILIES: [[&str; 2]; 2] =
    [["iptables", "iptables-restore"], ["ip6tables", "ip6tables-restore"]];

/// The UDP packets that do not pass the queue: messages between agents and proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exempt {
    /// Those from this port.
    From(u16),
    /// Those to this port.
    To(u16),
}

impl Exempt {
    fn port(self) -> (&'static str, u16) {
        match self {
            Self::From(port) => ("sport", port),
            Self::To(port) => ("dport", port),
        }
    }
}

/// Rules that are set up. They are removed when this is dropped.
#[derive(Debug)]
pub struct Rules {
    program: Program,
    queue: u16,
    removed: bool,
}

impl Rules {
    /// Passes UDP packets that arrive by these interfaces to this queue, in both families, but
    /// for those that are exempt. While no program has bound the queue, they pass. This also
    /// removes what a killed program has left. Bind the queue before: the number is this program's
    /// only then.
    ///
    /// # Errors
    /// One sentence for the operator: why this is impossible. Nothing is set up then.
    pub fn set_up(interfaces: &[String], queue: u16, exempt: Exempt) -> Result<Self, RulesError> {
        by_either(|program| Self::set_up_by(program, interfaces, queue, exempt))
    }

    /// Tries whether [`Rules::set_up`] would succeed, and changes nothing. Without the privilege,
    /// it only looks whether there is a program.
    ///
    /// # Errors
    /// As [`Rules::set_up`].
    pub fn rehearse(interfaces: &[String], queue: u16, exempt: Exempt) -> Result<(), RulesError> {
        by_either(|program| write(program, true, interfaces, queue, exempt)).or_else(|error| {
            match error {
                RulesError::Refused(..) if !nix::unistd::geteuid().is_root() => Ok(()),
                error => Err(error),
            }
        })
    }

    /// The same by this program, as [`Rules::set_up`] does it by either.
    ///
    /// # Errors
    /// As [`Rules::set_up`].
    pub fn set_up_by(
        program: Program,
        interfaces: &[String],
        queue: u16,
        exempt: Exempt,
    ) -> Result<Self, RulesError> {
        check_names(interfaces)?;
        remove_left_overs(queue)?;
        // From here on, dropping this undoes what is done.
        let rules = Self { program, queue, removed: false };
        write(program, false, interfaces, queue, exempt)?;
        Ok(rules)
    }

    /// What has set them up.
    #[must_use]
    pub fn program(&self) -> Program {
        self.program
    }

    /// Removes the rules. Let all packets pass before ([`super::Queue::pass`]).
    ///
    /// # Errors
    /// One sentence for the operator: why they stay.
    pub fn remove(mut self) -> Result<(), RulesError> {
        self.removed = true;
        remove(self.program, self.queue).map(drop)
    }

    /// Sets the rules up again, which another program may have removed with its own.
    ///
    /// # Errors
    /// As [`Rules::set_up`].
    pub fn renew(&self, interfaces: &[String], exempt: Exempt) -> Result<(), RulesError> {
        remove_left_overs(self.queue)?;
        write(self.program, false, interfaces, self.queue, exempt)
    }

    /// Removes the rules for this queue that a killed program has left, and returns what it did,
    /// for the operator. It leaves those of a running program alone.
    ///
    /// # Errors
    /// One sentence for the operator: why they stay.
    pub fn clean(queue: u16) -> Result<String, RulesError> {
        if is_bound(queue) {
            return Ok(format!("a running program has the queue {queue}: its rules stay"));
        }
        let removed = remove_left_overs(queue)?.ok_or(RulesError::NotListed)?;
        let what = if removed { "removed the rules" } else { "there are no rules" };
        Ok(format!("{what} for the queue {queue}"))
    }
}

/// Whether a program has this queue.
fn is_bound(queue: u16) -> bool {
    let queues = std::fs::read_to_string(QUEUES).unwrap_or_default();
    let numbers = queues.lines().filter_map(|line| line.split_whitespace().next());
    numbers.filter_map(|number| number.parse().ok()).any(|bound: u16| bound == queue)
}

/// Removes what a killed program has left. Returns whether there was anything, or `None` if no
/// program can tell.
fn remove_left_overs(queue: u16) -> Result<Option<bool>, RulesError> {
    let (iptables, nft) = (remove(Program::Iptables, queue), remove(Program::Nft, queue));
    Ok(either(iptables?, nft?))
}

/// Whether either is true, as far as they are known.
fn either(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    one.into_iter().chain(other).reduce(|one, other| one || other)
}

impl Drop for Rules {
    fn drop(&mut self) {
        if !self.removed
            && let Err(error) = remove(self.program, self.queue)
        {
            tracing::warn!("{error}");
        }
    }
}

/// Tries the one program, then the other.
fn by_either<T>(by: impl Fn(Program) -> Result<T, RulesError>) -> Result<T, RulesError> {
    by(Program::Iptables).or_else(|first| match by(Program::Nft) {
        // The message of the program that the system has.
        Err(RulesError::NoProgram) => Err(first),
        Err(second) if !matches!(first, RulesError::NoProgram) => {
            tracing::debug!("{second}");
            Err(first)
        }
        other => other,
    })
}

/// # Errors
/// A name that a rule cannot have.
fn check_names(interfaces: &[String]) -> Result<(), RulesError> {
    match interfaces.iter().find(|name| !is_plain(name)) {
        Some(name) => Err(RulesError::Interface(name.clone())),
        None => Ok(()),
    }
}

/// Adds the rules, or with `rehearses` only has the program check them.
fn write(
    program: Program,
    rehearses: bool,
    interfaces: &[String],
    queue: u16,
    exempt: Exempt,
) -> Result<(), RulesError> {
    check_names(interfaces)?;
    let rehearsal = |flag| Some(flag).filter(|_| rehearses);
    match program {
        Program::Iptables => {
            let script = iptables_rules(interfaces, queue, exempt);
            let arguments = ["--noflush", "-w", "5"].into_iter().chain(rehearsal("--test"));
            let arguments: Vec<_> = arguments.collect();
            families().try_for_each(|[_, restore]| change(restore, &arguments, &script))
        }
        Program::Nft => {
            let arguments: Vec<_> = ["-f", "-"].into_iter().chain(rehearsal("--check")).collect();
            change("nft", &arguments, &nft_rules(interfaces, queue, exempt)).map_err(|error| {
                match error {
                    RulesError::Refused(_, said) if said.contains("No such file or directory") => {
                        RulesError::NoExpression(said)
                    }
                    error => error,
                }
            })
        }
    }
}

/// Removes the rules of one of iptables' families, as [`remove`] does.
fn remove_family(
    [list, restore]: [&'static str; 2],
    queue: u16,
) -> Result<Option<bool>, RulesError> {
    let Some(listed) = listed(list, &["-w", "5", "-t", "mangle", "-S"])? else { return Ok(None) };
    let script = iptables_removal(&listed, queue);
    if let Some(script) = &script {
        change(restore, &["--noflush", "-w", "5"], script)?;
    }
    Ok(Some(script.is_some()))
}

/// Removes what this program has set up for this queue. Returns whether there was any, or `None` if
/// the program cannot tell: then it has changed nothing.
fn remove(program: Program, queue: u16) -> Result<Option<bool>, RulesError> {
    match program {
        Program::Iptables => {
            // The second family is tried even if the first one fails.
            let outcomes: Vec<_> = families().map(|family| remove_family(family, queue)).collect();
            let outcomes: Result<Vec<_>, _> = outcomes.into_iter().collect();
            Ok(outcomes?.into_iter().fold(None, either))
        }
        Program::Nft => {
            let table = format!("table inet {}", nft_table(queue));
            let Some(listed) = listed("nft", &["list", "tables"])? else { return Ok(None) };
            let is_there = listed.lines().any(|line| line == table);
            if is_there {
                change("nft", &["-f", "-"], &format!("delete {table}\n"))?;
            }
            Ok(Some(is_there))
        }
    }
}

/// The programs for the families that this kernel has.
fn families() -> impl Iterator<Item = [&'static str; 2]> {
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    FAMILIES.into_iter().take(if has_ipv6 { 2 } else { 1 })
}

/// Whether a name means itself in the rules of both programs: iptables takes a plus for any ending,
/// nft an asterisk.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(plain)
}

fn chain(queue: u16) -> String {
    format!("SIDEKICK-{queue}")
}

fn nft_table(queue: u16) -> String {
    format!("sidekick_{queue}")
}

/// The input of iptables-restore that sets up the rules, all or nothing.
fn iptables_rules(interfaces: &[String], queue: u16, exempt: Exempt) -> String {
    let (chain, (end, port)) = (chain(queue), exempt.port());
    let mut script = format!("*mangle\n:{chain} - [0:0]\n");
    for interface in interfaces {
        let _ = writeln!(
            script,
            "-A {chain} -i {interface} -p udp ! --{end} {port} -j NFQUEUE --queue-num {queue} \
             --queue-bypass"
        );
    }
    let _ = writeln!(script, "-A PREROUTING -j {chain}\nCOMMIT");
    script
}

/// The input of iptables-restore that removes the rules from a table that was listed. `None` if it
/// has none of them.
fn iptables_removal(listed: &str, queue: u16) -> Option<String> {
    let chain = chain(queue);
    listed.lines().any(|line| line == format!("-N {chain}")).then(|| {
        let jump = format!("-A PREROUTING -j {chain}");
        let jumps = listed.lines().filter(|line| **line == jump).count();
        let removals = format!("-D PREROUTING -j {chain}\n").repeat(jumps);
        // The first line of a chain empties it.
        format!("*mangle\n:{chain} - [0:0]\n{removals}-X {chain}\nCOMMIT\n")
    })
}

/// The input of nft that sets up the rules, all or nothing.
fn nft_rules(interfaces: &[String], queue: u16, exempt: Exempt) -> String {
    let (table, (end, port)) = (nft_table(queue), exempt.port());
    let names: Vec<_> = interfaces.iter().map(|name| format!("\"{name}\"")).collect();
    let names = names.join(", ");
    // The priority of iptables' table.
    format!(
        "table inet {table} {{\n\
         \tchain prerouting {{\n\
         \t\ttype filter hook prerouting priority -150; policy accept;\n\
         \t\tiifname {{ {names} }} udp {end} != {port} queue num {queue} bypass\n\
         \t}}\n\
         }}\n"
    )
}

/// What a program prints. `None` if it is not there, or fails.
fn listed(program: &'static str, arguments: &[&str]) -> Result<Option<String>, RulesError> {
    match output(program, arguments, "") {
        Ok(output) if output.status.success() => {
            Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
        }
        Ok(_) | Err(RulesError::NoProgram) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs a program that changes rules.
fn change(program: &'static str, arguments: &[&str], input: &str) -> Result<(), RulesError> {
    let output = output(program, arguments, input)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(RulesError::Refused(program, said_by(&said).unwrap_or_else(|| output.status.to_string())))
}

/// A program's message in one line. `None` if it said nothing.
fn said_by(message: &str) -> Option<String> {
    let words: Vec<_> = message.split_whitespace().collect();
    let line: String = words.join(" ").chars().take(MOST_SAID).collect();
    Some(line).filter(|line| !line.is_empty())
}

/// Runs a program to its end.
fn output(program: &'static str, arguments: &[&str], input: &str) -> Result<Output, RulesError> {
    // These programs are where only root's path leads.
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RulesError::NoProgram,
            _ => RulesError::NotRun(program, error),
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has ended already says why. A few lines fit into the pipe.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output().map_err(|error| RulesError::NotRun(program, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_the_interfaces_and_the_queue() {
        let interfaces = ["eth0".to_owned(), "wlan0.7".to_owned()];
        assert_eq!(
            iptables_rules(&interfaces, 7, Exempt::From(5252)),
            "*mangle\n\
             :SIDEKICK-7 - [0:0]\n\
             -A SIDEKICK-7 -i eth0 -p udp ! --sport 5252 -j NFQUEUE --queue-num 7 --queue-bypass\n\
             -A SIDEKICK-7 -i wlan0.7 -p udp ! --sport 5252 -j NFQUEUE --queue-num 7 --queue-bypass\n\
             -A PREROUTING -j SIDEKICK-7\n\
             COMMIT\n"
        );
        let nft = nft_rules(&interfaces, 7, Exempt::To(5252));
        let rule = "iifname { \"eth0\", \"wlan0.7\" } udp dport != 5252 queue num 7 bypass\n";
        assert!(nft.contains(rule), "{nft}");
    }

    #[test]
    fn only_what_is_there_is_removed() {
        let foreign = "-P PREROUTING ACCEPT\n-N SIDEKICK-70\n-A PREROUTING -j SIDEKICK-70\n";
        assert_eq!(iptables_removal(foreign, 7), None);
        let jump = "-A PREROUTING -j SIDEKICK-7\n";
        for (jumps, removals) in [
            (String::new(), ""),
            (jump.into(), "-D PREROUTING -j SIDEKICK-7\n"),
            (jump.repeat(2), "-D PREROUTING -j SIDEKICK-7\n-D PREROUTING -j SIDEKICK-7\n"),
        ] {
            let listed = format!("{foreign}-N SIDEKICK-7\n{jumps}");
            let expected =
                format!("*mangle\n:SIDEKICK-7 - [0:0]\n{removals}-X SIDEKICK-7\nCOMMIT\n");
            assert_eq!(iptables_removal(&listed, 7), Some(expected));
        }
    }

    #[test]
    fn a_name_with_a_meaning_is_refused() {
        for name in ["", "eth+", "eth*", "-x", "a b", "a\"b", "a\nb", "!eth0"] {
            let error = Rules::set_up(&[name.to_owned()], 7, Exempt::To(5252)).unwrap_err();
            assert!(matches!(error, RulesError::Interface(_)), "{name}: {error}");
        }
        assert!(is_plain("eth0") && is_plain("wlp3s0.100") && is_plain("br-lan"));
    }

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(said_by("a:\n  b\n").unwrap(), "a: b");
        assert_eq!(said_by(" \n"), None);
        assert_eq!(said_by(&"é".repeat(1000)).unwrap().chars().count(), MOST_SAID);
    }
}
