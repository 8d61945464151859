//! Losses that time causes. netem knows only packets, so a thread changes its loss when an outage
//! or a fade begins, and when it ends.

use std::io::{self, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use super::TcError;
use super::commands::change;
use crate::link::{LinkConfig, Timetable};
use crate::namespace::{Namespace, NamespaceError, tool};
use crate::units::Percent;

/// One direction of a link whose loss changes, until the drop.
#[derive(Debug)]
pub(crate) struct Timed {
    begin: Sender<()>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Timed {
    /// Gets ready to change the loss of `interface` of `host`. `None` if it never changes.
    pub(crate) fn prepare(
        host: &Namespace,
        interface: &'static str,
        link: &LinkConfig,
        seed: u64,
        stream: u64,
    ) -> Result<Option<Self>, TcError> {
        let Some(timetable) = Timetable::of(link, seed, stream) else { return Ok(None) };
        let link = link.clone();
        // Each change by a program of its own would come late by that program's start.
        let tc = tool("tc").ok_or_else(|| NamespaceError::NoTool { program: "tc".to_owned() })?;
        let mut command = Command::new(tc);
        command.args(["-batch", "-"]).stdin(Stdio::piped());
        let tc = host.enter(move || command.spawn())?.map_err(failed("start tc"))?;
        let (begin, begins) = channel();
        let change = move |loss| change(interface, &link, loss);
        let thread = std::thread::Builder::new()
            .name(format!("tc {interface}"))
            .spawn(move || keep(timetable, tc, &begins, change))
            .map_err(failed("start a thread"))?;
        Ok(Some(Self { begin, thread: Some(thread) }))
    }

    /// The time begins now.
    pub(crate) fn begin(&self) {
        // If the thread has failed, the check says why.
        let _ = self.begin.send(());
    }

    /// Checks that the loss still changes.
    pub(crate) fn check(&mut self) -> Result<(), TcError> {
        let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) else {
            return Ok(());
        };
        let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        let source = ended.err().unwrap_or_else(|| io::Error::other("tc ended"));
        Err(failed("change the loss of a link by tc")(source).into())
    }
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> NamespaceError {
    let what = what.to_owned();
    |source| NamespaceError::Failed { what, source }
}

/// Changes the loss by a timetable, from the message on until the channel disconnects.
fn keep(
    mut timetable: Timetable,
    mut tc: Child,
    begins: &Receiver<()>,
    change: impl Fn(Option<Percent>) -> String,
) -> io::Result<()> {
    let mut input = tc.stdin.take();
    let mut told = begins.recv().map_err(RecvTimeoutError::from);
    let begun = now();
    let mut loss = None;
    while told != Err(RecvTimeoutError::Disconnected) {
        let (new, next) = timetable.at(begun.elapsed());
        if std::mem::replace(&mut loss, new) != new
            && let Some(input) = &mut input
        {
            writeln!(input, "{}", change(new))?;
        }
        told = match next {
            Some(next) => begins.recv_timeout(next.saturating_sub(begun.elapsed())),
            None => begins.recv().map_err(RecvTimeoutError::from),
        };
    }
    // It ends at the end of its input.
    drop(input);
    tc.wait().map(drop)
}

#[allow(clippy::disallowed_methods, reason = "the edge: the kernel's links run in real time")]
fn now() -> Instant {
    Instant::now()
}
