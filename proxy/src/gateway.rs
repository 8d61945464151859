//! Where packets wait until those before them are here: a queue of netfilter, and the rules of the
//! firewall by which packets pass it. Whatever fails, packets pass.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use caps::{Capability, CapsHashSet};
use tracing::warn;

use crate::life::Kept;
use crate::queue::{Exempt, Queue, QueueError, Rules, RulesError};
use crate::terminal;
use sidekick_protocol::DEFAULT_PORT;

/// Most reads of the queue in one turn, of at most 32 packets each.
const READS_PER_TURN: usize = 8;
/// Most packets that wait in the queue. When there are more, they pass at once.
const QUEUED: u32 = 4096;
/// Rules are set up again at most this often.
const RENEWS_EVERY: Duration = Duration::from_secs(60);

/// A queue with its rules, or none.
#[derive(Debug, Default)]
pub(crate) struct Gateway {
    open: Option<(Queue, Rules)>,
    /// When its rules were last set up again.
    renewed: Option<Instant>,
    /// Why it is closed although the operator wants it.
    fault: Option<String>,
}

/// Remarks on what this machine lacks for [`Gateway::open`].
pub(crate) fn lacks(interfaces: &[String], number: u16, exempt: Exempt) -> Vec<String> {
    let queue = match Queue::probe(number) {
        // Another user than the program's may ask.
        Ok(_) | Err(QueueError::NotPermitted) => None,
        Err(error) => Some(error.to_string()),
    };
    let rules = Rules::rehearse(interfaces, number, exempt).err().map(|error| error.to_string());
    let lacks = queue.into_iter().chain(rules);
    lacks.map(|what| format!("in-order: {what}; until then, nothing waits")).collect()
}

/// Removes the rules of the firewall that a killed program has left, and says what it did. Without
/// settings, they are for the default queue.
pub(crate) fn clean(settings: Option<(u16, bool)>) -> anyhow::Result<()> {
    let (queue, in_order) = settings.unwrap_or((DEFAULT_PORT, true));
    match Rules::clean(queue) {
        // Such a program sets up none, and needs no iptables.
        Err(RulesError::NotListed) if !in_order => Ok(()),
        outcome => terminal::print(&(outcome? + "\n")),
    }
}

impl Gateway {
    /// Opens it for UDP packets that arrive by these interfaces. If that is impossible, it logs
    /// why, and nothing waits.
    pub(crate) fn open(interfaces: &[String], number: u16, exempt: Exempt) -> Self {
        let queue = Queue::bind(number, QUEUED).map_err(anyhow::Error::from);
        let opened =
            queue.and_then(|queue| Ok((queue, Rules::set_up(interfaces, number, exempt)?)));
        match opened {
            Ok(open) => Self { open: Some(open), renewed: None, fault: None },
            Err(error) => Self::closed(&format!("{error:#}")),
        }
    }

    /// None, for this reason, which it logs.
    pub(crate) fn closed(why: &str) -> Self {
        warn!("in-order: {why}; nothing waits");
        Self { open: None, renewed: None, fault: Some(why.to_owned()) }
    }

    /// Why it is closed although the operator wants it, if so.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Packets that passed unread, because too many waited.
    pub(crate) fn unread(&self) -> u64 {
        self.open.as_ref().map_or(0, |(queue, _)| queue.counters().unread)
    }

    /// What the program must keep: the kernel takes verdicts from no one without CAP_NET_ADMIN, and
    /// the programs that renew and remove the rules need both.
    pub(crate) fn capabilities(&self) -> Kept {
        let both = CapsHashSet::from([Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]);
        match self.open {
            Some(_) => Kept { own: both.clone(), inherited: both },
            None => Kept { own: [Capability::CAP_NET_RAW].into(), inherited: CapsHashSet::new() },
        }
    }

    /// The descriptor that is readable when packets wait.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.open.as_ref().map(|(queue, _)| queue.as_fd())
    }

    /// Passes packets that wait to `each`, as [`Queue::read`] does.
    pub(crate) fn read(&mut self, mut each: impl FnMut(u32, &[u8])) {
        let Some((queue, _)) = &mut self.open else { return };
        for _ in 0..READS_PER_TURN {
            match queue.read(&mut each) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => return self.fail(&format!("the queue failed: {error}")),
            }
        }
    }

    /// Lets a packet pass at the next [`Gateway::flush`].
    pub(crate) fn accept(&mut self, id: u32) {
        self.open.iter_mut().for_each(|(queue, _)| queue.accept(id));
    }

    /// Lets packets pass that are due, before anything that follows them.
    pub(crate) fn flush(&mut self) {
        let outcome = self.open.as_mut().map_or(Ok(()), |(queue, _)| queue.flush());
        if let Err(error) = outcome {
            self.fail(&format!("a verdict failed: {error}"));
        }
    }

    /// Sets up its rules again, since packets do not pass the queue: another program may have
    /// removed them with its own. It does so once in a while, as there may be another reason.
    pub(crate) fn renew(&mut self, interfaces: &[String], exempt: Exempt, now: Instant) {
        let Some((_, rules)) = &self.open else { return };
        if self.renewed.is_some_and(|last| now < last + RENEWS_EVERY) {
            return;
        }
        self.renewed = Some(now);
        if let Err(error) = rules.renew(interfaces, exempt) {
            warn!("in-order: {error}");
        }
    }

    fn fail(&mut self, why: &str) {
        self.close();
        *self = Self::closed(why);
    }

    /// Lets all packets pass, and removes the rules.
    pub(crate) fn close(&mut self) {
        let Some((mut queue, rules)) = self.open.take() else { return };
        if let Err(error) = queue.pass() {
            warn!("in-order: cannot let the packets pass: {error}");
        }
        if let Err(error) = rules.remove() {
            warn!("in-order: {error}; packets pass, since no program has the queue");
        }
    }
}
