//! All settings, by section.

use super::setting::Setting;
use super::{Scenario, ScenarioError, faults, flow, segment, sidekick};

/// The description of a setting, for lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The section.
    pub section: &'static str,
    /// Its name within the section.
    pub key: &'static str,
    /// The values that it accepts, in words.
    pub takes: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

impl About {
    /// `section.key`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }
}

/// Parses and stores a value. Returns `None` if it is invalid.
type Store = Box<dyn Fn(&mut Scenario, &str) -> Option<()>>;

/// Every setting.
pub fn settings() -> impl Iterator<Item = About> {
    all().map(|(about, _)| about)
}

fn all() -> impl Iterator<Item = (About, Store)> {
    fn section<T: 'static>(
        section: &'static str,
        settings: &'static [Setting<T>],
        of: fn(&mut Scenario) -> &mut T,
    ) -> impl Iterator<Item = (About, Store)> {
        settings.iter().map(move |&Setting { key, takes, meaning, store }| {
            let store: Store = Box::new(move |scenario, value| store(of(scenario), value));
            (About { section, key, takes, meaning }, store)
        })
    }
    section("near", segment::SETTINGS, |scenario| &mut scenario.near)
        // Any setting of this section adds the segment to the path.
        .chain(section("middle", segment::SETTINGS, |scenario| {
            scenario.middle.get_or_insert_default()
        }))
        .chain(section("second", segment::SETTINGS, |scenario| {
            scenario.second.get_or_insert_default()
        }))
        .chain(section("far", segment::SETTINGS, |scenario| &mut scenario.far))
        .chain(section("flow", flow::FLOW, |scenario| &mut scenario.flow))
        .chain(section("competitor", flow::COMPETITOR, |scenario| &mut scenario.competitor))
        .chain(section("sidekick", sidekick::SIDEKICK, |scenario| &mut scenario.sidekick))
        .chain(section("faults", faults::SETTINGS, |scenario| &mut scenario.faults))
}

/// Finds the setting `section.key` and stores the value.
pub(super) fn set(scenario: &mut Scenario, name: &str, value: &str) -> Result<(), ScenarioError> {
    // Events have their own grammar and errors.
    if name == faults::EVENTS {
        scenario.faults.events = faults::events_of(value)?;
        return Ok(());
    }
    let (section, key) = name.split_once('.').unwrap_or_default();
    let found = all().find(|(about, _)| (about.section, about.key) == (section, key));
    let (About { takes, .. }, store) = found.ok_or_else(|| unknown(name))?;
    store(scenario, value).ok_or_else(|| {
        ScenarioError::Wrong(format!("`{value}` is no value for {name}; it takes {takes}"))
    })
}

/// A setting whose name is so much like an unknown one (by Jaro and Winkler) may be meant.
const LIKE: f64 = 0.9;

/// The error for a setting or section that does not exist.
pub(super) fn unknown(name: &str) -> ScenarioError {
    fn section(name: &str) -> &str {
        name.split_once('.').map_or("", |(section, _)| section)
    }
    let all: Vec<String> = settings().map(|setting| setting.name()).collect();
    let of_section: Vec<&str> =
        all.iter().map(String::as_str).filter(|one| section(one) == section(name)).collect();
    let likeness = |one: &&&str| strsim::jaro_winkler(one, name);
    let nearest = of_section.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let known = of_section.join(", ");
    let advice = match nearest {
        Some(nearest) if likeness(&nearest) > LIKE => {
            format!("did you mean {nearest}? The section has {known}")
        }
        Some(_) => format!("the section has {known}"),
        None => {
            let mut sections: Vec<_> = all.iter().map(|name| section(name)).collect();
            sections.dedup();
            format!("the sections are {}", sections.join(", "))
        }
    };
    ScenarioError::Wrong(format!("there is no setting `{name}`; {advice}"))
}
