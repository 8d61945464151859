use super::*;
use crate::agent;
use proptest::prelude::*;

fn command(of_agent: bool) -> Command {
    let mut command = if of_agent { agent::cli::definition() } else { crate::cli::definition() };
    command.build();
    command
}

/// The line and the sentence of an error in a text.
fn wrong(of_agent: bool, text: &str) -> String {
    let error = parse(text, &command(of_agent), &ArgMatches::default()).unwrap_err();
    let line = text.get(..error.0).unwrap().matches('\n').count() + 1;
    format!("{line}: {}", error.1)
}

#[test]
fn an_error_names_its_place_and_says_what_to_write() {
    for (text, said) in [
        (
            "interfaces = [\"a\"]\nmax-sessions = 0\n",
            "2: max-sessions: invalid value '0': 0 is not in 1..=1000000",
        ),
        (
            "max-threshold = \"many\"",
            "1: max-threshold: invalid value 'many': invalid digit found in string",
        ),
        (
            "\n\nlisten = \"nowhere\"",
            "3: listen: invalid value 'nowhere': write an address and port like [::]:5252",
        ),
        (
            "listen = 5252",
            "1: listen: invalid value '5252': write an address before the port, like [::]:5252",
        ),
        (
            "announce = [\"0.0.0.0:1\"]",
            "1: announce: invalid value '0.0.0.0:1': write an address of this machine and a port, \
             like 192.0.2.1:5252",
        ),
        (
            "log = \"loud\"",
            "1: log: invalid value 'loud' [possible values: warn, info, debug, trace]",
        ),
        (
            "metrics = \"on\"",
            "1: metrics: invalid value 'on': write an address and port like 127.0.0.1:9252, or off",
        ),
        ("listen = [\"[::]:1\"]", "1: listen: one value is needed, and no list"),
        (
            "interfaces = [\"near\", \"\"]",
            "1: interfaces: invalid value '': the name is empty: leave it out",
        ),
        (
            "keep = -1",
            "1: keep: invalid value '-1': expected a number of bytes like 64M, 512K or 1000000, \
             up to 1024G",
        ),
        ("discovery = 1", "1: discovery: write true or false"),
        ("key = 1979-05-27", "1: key: write a text or a number"),
    ] {
        assert_eq!(wrong(false, text), said);
    }
    for (text, said) in [
        ("tun = false", "1: tun: invalid value 'false': write off for no device"),
        (
            "only = [443, \"10.0.0.1/8\"]",
            "1: only: invalid value '10.0.0.1/8': the address has bits behind its prefix: write \
             10.0.0.0/8",
        ),
        (
            "proxy-key = \"12\"",
            "1: proxy-key: invalid value '12': expected 64 hexadecimal digits, as the proxy shows \
             its public key",
        ),
    ] {
        assert_eq!(wrong(true, text), said);
    }
    // The parser's own words about what is no TOML.
    let unquoted = wrong(false, "interfaces = [\"a\"]\nlog = info");
    assert!(
        unquoted.starts_with("2: log: ") && unquoted.ends_with("(a text needs quotes)"),
        "{unquoted}"
    );
    let broken = wrong(false, "interfaces = [\"a\"\nlisten");
    assert!(broken.starts_with("1: ") || broken.starts_with("2: "), "{broken}");
    let absent = options_of::<crate::cli::Options>("/nonexistent/p.toml".as_ref());
    let said = absent.map(|_| ()).unwrap_err().to_string();
    assert!(said.starts_with("cannot read /nonexistent/p.toml: "), "{said}");
}

#[test]
fn an_unknown_key_is_answered_by_the_one_that_was_meant() {
    for (text, said) in [
        (
            "# ours\nmax-session = 3",
            "2: max-session: this is not a key: did you mean max-sessions?",
        ),
        ("max_sessions = 3", "1: max_sessions: this is not a key: did you mean max-sessions?"),
        ("no-discovery = true", "1: no-discovery: this is not a key: write discovery = false"),
        ("verbose = true", "1: verbose: this is a flag, and no key of a file: use --verbose alone"),
        ("json = true", "1: json: this is a flag, and no key of a file: use --json alone"),
        ("[package]\nname = \"x\"", "1: package: this is not a key: each flag of --help is one"),
    ] {
        assert_eq!(wrong(false, text), said);
    }
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_an_error_of_one_line(
        text in "(only = |except = |keep = )?[a-z =\\[\\]\"\n0-9.:#/-]{0,80}",
        of_agent in any::<bool>(),
    ) {
        if let Err((at, said)) = parse(&text, &command(of_agent), &ArgMatches::default()) {
            prop_assert!(at <= text.len());
            prop_assert_eq!(said.lines().count(), 1);
        }
    }
}
