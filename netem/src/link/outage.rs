//! Times in which a link carries no packets.

use std::sync::Arc;
use std::time::Duration;

/// One outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it begins, since the start of the run.
    pub from: Duration,
    /// How long it lasts.
    pub length: Duration,
}

/// The outages of a link, in which it drops every packet that reaches it. Packets that it accepted
/// before still arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages(Arc<[Outage]>);

impl Outages {
    /// Whether the link is down at this time.
    pub fn contains(&self, now: Duration) -> bool {
        self.0
            .iter()
            .any(|outage| now.checked_sub(outage.from).is_some_and(|since| since < outage.length))
    }

    /// Every outage.
    pub fn iter(&self) -> impl Iterator<Item = &Outage> {
        self.0.iter()
    }

    /// Whether there is no outage.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Outage> for Outages {
    fn from_iter<I: IntoIterator<Item = Outage>>(outages: I) -> Self {
        Self(outages.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_holds_its_beginning_and_not_its_end() {
        let ms = Duration::from_millis;
        let outages: Outages = [(20, 5), (8, 1)]
            .map(|(from, length)| Outage { from: ms(from), length: ms(length) })
            .into_iter()
            .collect();
        let down: Vec<u64> = (0..40).filter(|&now| outages.contains(ms(now))).collect();
        assert_eq!(down, [8, 20, 21, 22, 23, 24]);
        assert!(!outages.is_empty() && Outages::default().is_empty());
    }
}
