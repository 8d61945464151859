//! Runs an agent.

use anyhow::{Result, bail};
use tracing::debug;

use super::config::{AT_RESTART, AgentConfig};

/// Runs an agent until a signal ends it.
///
/// # Errors
/// One sentence for the operator: why the agent cannot start or continue.
pub(crate) fn run(
    config: &AgentConfig,
    _reread: Option<&dyn Fn() -> Result<AgentConfig>>,
) -> Result<()> {
    config.check()?;
    debug!("captures by {:?}; a restart for {AT_RESTART:?}", config.capture());
    bail!("this build cannot run an agent")
}
