//! All settings, by section.

use super::setting::Setting;
use super::{Scenario, ScenarioError, competitor, faults, flow, segment, sidekick};

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

/// Every setting.
pub fn settings() -> impl Iterator<Item = About> {
    fn section<T: 'static>(
        section: &'static str,
        settings: &'static [Setting<T>],
    ) -> impl Iterator<Item = About> {
        settings.iter().map(move |&Setting { key, takes, meaning, .. }| About {
            section,
            key,
            takes,
            meaning,
        })
    }
    section("near", segment::SETTINGS)
        .chain(section("middle", segment::SETTINGS))
        .chain(section("far", segment::SETTINGS))
        .chain(section("flow", flow::SETTINGS))
        .chain(section("competitor", competitor::SETTINGS))
        .chain(section("sidekick", sidekick::SETTINGS))
        .chain(section("faults", faults::SETTINGS))
}

/// Finds the setting `section.key` and stores the value.
pub(super) fn set(scenario: &mut Scenario, name: &str, value: &str) -> Result<(), ScenarioError> {
    match name.split_once('.') {
        Some(("near", key)) => store(segment::SETTINGS, &mut scenario.near, name, key, value),
        // Any setting of this section adds the segment to the path.
        Some(("middle", key)) => {
            let mut middle = scenario.middle.clone().unwrap_or_default();
            store(segment::SETTINGS, &mut middle, name, key, value)?;
            scenario.middle = Some(middle);
            Ok(())
        }
        Some(("far", key)) => store(segment::SETTINGS, &mut scenario.far, name, key, value),
        Some(("flow", key)) => store(flow::SETTINGS, &mut scenario.flow, name, key, value),
        Some(("competitor", key)) => {
            store(competitor::SETTINGS, &mut scenario.competitor, name, key, value)
        }
        Some(("sidekick", key)) => {
            store(sidekick::SETTINGS, &mut scenario.sidekick, name, key, value)
        }
        // Events have their own grammar and errors.
        Some(("faults", "events")) => {
            scenario.faults.events = faults::events_of(value)?;
            Ok(())
        }
        _ => Err(unknown(name)),
    }
}

fn store<T>(
    settings: &[Setting<T>],
    target: &mut T,
    name: &str,
    key: &str,
    value: &str,
) -> Result<(), ScenarioError> {
    let setting =
        settings.iter().find(|setting| setting.key == key).ok_or_else(|| unknown(name))?;
    (setting.store)(target, value).ok_or_else(|| {
        let takes = setting.takes;
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
