//! The `sidekick-proxy` program.

use std::io::IsTerminal;
use std::process::ExitCode;

use sidekick_proxy::cli::Options;
use sidekick_proxy::daemon;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let options = Options::read(std::env::args_os()).unwrap_or_else(|complaint| complaint.exit());
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(options.log_filter()));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();

    // A proxy with a dead thread would still look alive; end it, and let the service manager start another.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));

    match daemon::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidekick-proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
